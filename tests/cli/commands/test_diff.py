"""What `kvplan diff` says of many equal changes."""

from __future__ import annotations

import pytest

from kvplan.cli.commands.diff import _folded
from kvplan.compiler.explain.diff import Change


def places(*changes: tuple[str, str]) -> list[str]:
    return [change.where for change in _folded([Change("pages", where, "1", after) for where, after in changes])]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["s.0.s page", "s.1.s page", "s.2.s page"], ["s.0-2.s page"]),
        (["s.0 x", "s.2 x"], ["s.0, 2 x"]),
        (["s.0 x", "s.1 y"], ["s.0 x", "s.1 y"]),
        (["worker 0 · s.0", "worker 1 · s.0", "worker 0 · s.1"], ["worker 0 · s.0-1", "worker 1 · s.0"]),
        (["k1 page", "k2 page"], ["k1 page", "k2 page"]),
        (["s page", "s.0 page"], ["s page", "s.0 page"]),
    ],
)
def test_groups_of_one_cache_are_said_once(given: list[str], said: list[str]) -> None:
    assert places(*((where, "2") for where in given)) == said


def test_unlike_changes_are_not_said_as_one() -> None:
    assert places(("s.0 page", "2"), ("s.1 page", "3"), ("s.2 page", "2")) == ["s.0, 2 page", "s.1 page"]


def test_new_and_gone_stay_apart() -> None:
    changes = [Change("reads", "s.0", None, "a"), Change("reads", "s.1", "a", None), Change("reads", "s.2", None, "a")]
    assert [change.text() for change in _folded(changes)] == ["s.0, 2: new, a", "s.1: gone, a"]
