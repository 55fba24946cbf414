"""A full line is waited for: what is to be said keeps its order, within bounds."""

from __future__ import annotations

from collections import deque

import pytest

from kvplan.runtime.control import outbox
from kvplan.runtime.control.card import ARRAY, ARRAY_TAG, HEAD
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
        body = message[HEAD:]
        self.taken.append(body[ARRAY.size :] if body[:1] == ARRAY_TAG else body)
        return LineState.TAKEN


def box_of(line: Narrow) -> Outbox:
    return Outbox(line.take)


def say(box: Outbox, message: bytes) -> bool:
    return box.put(message) and box.flush()


def test_what_a_line_does_not_take_is_said_later_and_in_order() -> None:
    line = Narrow(3)
    box, said = box_of(line), [str(number).encode() for number in range(10)]
    assert all(say(box, message) for message in said)
    assert (list(line.taken), len(box), box.full) == (said[:3], 7, True)
    line.taken.clear()
    assert say(box, b"last")
    assert (list(line.taken), len(box), box.full) == ([b"3456789last"], 0, False)


def test_what_is_put_is_said_together_and_no_more_than_so_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "TOGETHER", 4)
    monkeypatch.setattr(outbox, "TOGETHER_BYTES", 6)
    line = Narrow(9)
    box = box_of(line)
    ample = []
    for message in (b"a", b"b", b"c", b"d", b"e", b"large one", b"f"):
        assert box.put(message)
        ample.append(box.ample)
    assert (ample, list(line.taken)) == ([False] * 3 + [True] * 4, [])
    assert box.flush()
    assert list(line.taken) == [b"abcd", b"e", b"large one", b"f"]


def test_who_is_gone_is_waited_for_no_more() -> None:
    line = Narrow(1)
    box = box_of(line)
    assert say(box, b"1")
    assert say(box, b"2")
    line.gone = True
    assert not say(box, b"3")
    assert (len(box), box.full) == (0, False)


@pytest.mark.parametrize(("most", "bytes_"), [(4, 1 << 20), (100, 40)])
def test_so_much_waits_and_no_more(most: int, bytes_: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST", most)
    monkeypatch.setattr(outbox, "MOST_BYTES", bytes_)
    box = box_of(Narrow(0))
    assert [say(box, b"0123456789") for _ in range(6)] == [True] * 4 + [False] * 2
    assert len(box) == 4


def test_one_message_may_be_larger_than_what_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "MOST_BYTES", 1)
    line = Narrow(1)
    assert say(box_of(line), b"0123456789")
    assert list(line.taken) == [b"0123456789"]
