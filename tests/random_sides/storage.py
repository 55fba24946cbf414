"""Storage expressions from text, by the parser that layout files go through."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from kvplan.dsl.lang.nodes import Storage
from kvplan.dsl.lang.storage import parse_items
from kvplan.dsl.text.source import inline


def storage(text: str | Mapping[str, str]) -> Storage:
    """One allocation, or several by name."""
    return one(text) if isinstance(text, str) else several(tuple(text.items()))


@cache
def one(text: str) -> Storage:
    """One allocation."""
    return Storage("storage", ((None, parse_items(text, inline(text))),), inline(text))


@cache
def several(parts: tuple[tuple[str, str], ...]) -> Storage:
    """Allocations in order."""
    return Storage("test", tuple((name, parse_items(text, inline(text))) for name, text in parts), inline("parts"))
