"""Pages that begin with a command, followed literally: it prints what they show."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.tutorial import agrees, followed
from tests.paths import DOCS


@pytest.mark.parametrize("page", ["cli", "design", "errors", "index"])
def test_commands_print_what_the_page_shows(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = list(followed((DOCS / f"{page}.md").read_text()))
    assert steps
    for step in steps:
        assert step.code == 0
        assert agrees(step.block.shown, step.printed), "\n".join(step.printed)
