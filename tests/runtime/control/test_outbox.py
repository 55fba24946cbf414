"""A full line is waited for: what is to be said keeps its order, within bounds."""

from __future__ import annotations

from collections import deque

import pytest

from kvplan.runtime.control import outbox
from kvplan.runtime.control.outbox import LineState, Outbox


class Narrow:
    """A line that takes so many messages, until somebody reads them."""

    def __init__(self, room: int) -> None:
        self.room, self.taken, self.gone = room, deque[bytes](), False

    def take(self, message: bytes) -> LineState:
        if self.gone:
            return LineState.GONE
        if len(self.taken) >= self.room:
            return LineState.FULL
        self.taken.append(message)
        return LineState.TAKEN


def test_what_a_line_does_not_take_is_said_later_and_in_order() -> None:
    line = Narrow(3)
    box, said = Outbox(line.take), [str(number).encode() for number in range(10)]
    assert all(box.put(message) for message in said)
    assert (list(line.taken), len(box)) == (said[:3], 7)
    heard = [line.taken.popleft() for _ in range(3)]
    assert box.put(b"last")
    while line.taken:
        heard.append(line.taken.popleft())
        box.flush()
    assert (heard, len(box)) == ([*said, b"last"], 0)


def test_who_is_gone_is_waited_for_no_more() -> None:
    line = Narrow(1)
    box = Outbox(line.take)
    assert box.put(b"1")
    assert box.put(b"2")
    line.gone = True
    assert not box.put(b"3")
    assert len(box) == 0


@pytest.mark.parametrize(("most", "bytes_"), [(4, 1 << 20), (100, 40)])
def test_so_much_waits_and_no_more(most: int, bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST", most)
    monkeypatch.setattr(outbox, "MOST_BYTES", bytes_)
    box = Outbox(Narrow(0).take)
    assert [box.put(b"0123456789") for _ in range(6)] == [True] * 4 + [False] * 2
    assert len(box) == 4


def test_one_message_may_be_larger_than_what_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_BYTES", 1)
    line = Narrow(1)
    assert Outbox(line.take).put(b"0123456789")
    assert list(line.taken) == [b"0123456789"]
