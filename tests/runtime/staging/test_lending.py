"""The holders of lent buffers, and the end of a key."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kvplan.runtime.staging.lending import Lender


class Pieces:
    """Pieces of one key; a peer may still touch some of their buffers."""

    def __init__(self) -> None:
        self.numbers, self.lent, self.left, self.steps = set[int](), set[int](), False, 0

    def __len__(self) -> int:
        return len(self.numbers)

    def want(self, asked: Any, check: Any) -> None:
        check(asked.number)
        self.numbers.add(asked.number)
        self.lent.add(asked.number)

    def give_back(self, number: int, *, moved: bool) -> bool:
        self.numbers.discard(number)
        return moved

    def step(self) -> None:
        self.steps += 1

    def leave(self, request: str | None = None) -> None:
        self.left = self.left or request is None

    def reclaim(self, *, touched: bool) -> None:
        self.numbers &= self.lent if touched else set()


def lender(told: list[tuple[str, bool]] | None = None, touched: bool = False) -> tuple[Lender[str], list[Pieces]]:
    """A lender, and the pieces that it begins."""
    made: list[Pieces] = []

    def begin(_: str) -> Any:
        made.append(Pieces())
        return made[-1]

    over = None if told is None else lambda key, left: told.append((key, left))
    return Lender[str](begin, lambda _: touched, over), made


def ask(lends: Lender[str], key: str, number: int) -> None:
    lends.want(key, SimpleNamespace(number=number))  # type: ignore[arg-type]


def give_back(lends: Lender[str], key: str, number: int) -> bool:
    return lends.give_back(key, SimpleNamespace(number=number, moved=True))  # type: ignore[arg-type]


def test_a_key_that_is_not_left_is_kept_for_what_it_asks_next() -> None:
    lends, made = lender()
    ask(lends, "a", 1)
    assert give_back(lends, "a", 1)
    lends.step()
    ask(lends, "a", 2)
    assert (len(lends), len(made), made[0].steps) == (1, 1, 1)


def test_a_key_that_is_left_is_forgotten_at_once_if_nobody_touches_its_buffers() -> None:
    lends, made = lender()
    ask(lends, "a", 1)
    assert lends.leave("a")
    assert "a" not in lends.all
    assert made[0].steps == 0, "nothing of it moves on"
    assert not lends.leave("a")
    assert not give_back(lends, "a", 1)


def test_buffers_that_a_peer_may_still_touch_stay_lent_until_it_gives_them_back() -> None:
    lends, _ = lender(touched=True)
    ask(lends, "a", 1)
    lends.leave("a")
    lends.step()
    assert len(lends) == 1
    give_back(lends, "a", 1)
    lends.step()
    assert lends.all == {}


@pytest.mark.parametrize("left", [False, True])
def test_with_over_a_key_is_forgotten_when_nothing_of_it_is_lent_and_whoever_waits_is_told(left: bool) -> None:
    told: list[tuple[str, bool]] = []
    lends, _ = lender(told, touched=True)
    ask(lends, "a", 1)
    if left:
        lends.leave("a")
    lends.step()
    assert told == []
    give_back(lends, "a", 1)
    lends.step()
    lends.step()
    assert told == [("a", left)]


def test_one_request_of_a_key_is_left_and_the_others_go_on() -> None:
    lends, made = lender()
    ask(lends, "a", 1)
    assert lends.leave("a", "r")
    lends.step()
    assert (len(lends), made[0].steps) == (1, 1)


def test_a_piece_that_does_not_stand_the_check_is_not_lent() -> None:
    lends, _ = lender()

    def refuse(_: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        lends.want("a", SimpleNamespace(number=1), refuse)  # type: ignore[arg-type]
    assert len(lends) == 0
