"""docs/store.md, followed literally."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_guide import follow, steps
from tests.paths import DOCS


def test_every_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    every = steps((DOCS / "store.md").read_text())
    assert len(every) == 8
    for step in every:
        assert follow(step, names) == step.shown
