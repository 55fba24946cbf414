"""Every file in bad/ opens with a comment block: the exact errors that `check` finds in it.

KVPLAN_REGOLD=1 rewrites the blocks, and is never green.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kvplan.dsl.check import check
from kvplan.dsl.text.diagnostics import render

BAD = Path(__file__).parent / "bad"
FILES = sorted(BAD.glob("*.yaml"))


def block(text: str) -> str:
    """The comment that a file opens with."""
    return text[: len(text) - len(re.sub(r"\A(#.*\n)*", "", text))]


def rewrite(path: Path) -> None:
    """The block's own lines shift the line numbers in it, so the file is checked twice."""
    body = path.read_text().removeprefix(block(path.read_text()))
    for _ in range(2):
        lines = render(check([path])).splitlines()
        path.write_text("".join(f"{f'# {line}'.rstrip()}\n" for line in lines) + body)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_errors_are_those_in_the_comment(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD)
    if os.environ.get("KVPLAN_REGOLD"):
        rewrite(path)
        pytest.fail(f"rewrote {path.name}")
    assert render(check([path])).splitlines() == re.findall(r"^# ?(.*)\n", block(path.read_text()), re.MULTILINE)
