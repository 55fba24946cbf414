"""docs/index.md, followed literally."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.docs.tutorial import agrees, followed
from tests.paths import DOCS


def test_its_commands_print_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = list(followed((DOCS / "index.md").read_text()))
    assert steps
    for step in steps:
        assert step.code == 0
        assert agrees(step.block.shown, step.printed), "\n".join(step.printed)
