"""What is written about one code."""

from __future__ import annotations

from typing import NamedTuple


class ErrorCode(NamedTuple):
    """One sentence, and a long text with an example."""

    title: str
    text: str


def example(wrong: str, right: str) -> str:
    return f"\n\nWrong:\n\n    {wrong}\n\nRight:\n\n    {right}"
