"""Shares: which part of a long list `make test` runs. The rest of it is marked `full`, and runs in `make test-all`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def with_rest(first: str) -> pytest.MarkDecorator:
    """The parameter `rest` of a test: False for its share, called `first`, True for what is left of it."""
    params = [pytest.param(False, id=first), pytest.param(True, marks=pytest.mark.full, id="the rest")]
    return pytest.mark.parametrize("rest", params)


def share(every: Iterable[T], turn: int, of: int, rest: bool) -> list[T]:
    """One of `of` items, another one first from turn to turn; or, as `rest`, the others."""
    return [item for number, item in enumerate(every) if (number % of == turn % of) != rest]


def later(items: Iterable[Any]) -> list[Any]:
    """Values of a parameter that `make test` leaves to `make test-all`."""
    full = pytest.mark.full
    return [pytest.param(*(item if isinstance(item, tuple) else (item,)), marks=full) for item in items]
