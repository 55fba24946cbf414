"""A prefill worker's answers to decode workers, and to calls of its caller in the wrong order."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.callers import ONE, Caller, hold_of
from tests.runtime.helpers.plans import Model, Shape, plan
from tests.runtime.helpers.steered import Clock
from tests.runtime.helpers.worlds import PREFILL, memory

from kvplan.compiler.api import compile_pair
from kvplan.dsl.library import load
from kvplan.runtime import Blocks, InMemory, Limits, Plain, PrefillWorker, Slot, errors, views
from kvplan.runtime.control import messages as wire
from kvplan.runtime.control.card import MAGIC, checksum, seal
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.prefill.lease_clock import LONGEST_PAUSE, LeaseClock
from kvplan.runtime.transport.inmemory import Hub

WIDE = plan(Shape(1), Shape(2))
NESTED = b"\x85\xa4type\xa4done\xa7request\xa1r\xa4plan\xa1x\xa6worker\x00\xa1z" + b"\x91" * 3500 + b"\x00"
NO_TEXT = b"\x84\xa4type\xa4done\xa7request\xa2\xff\xfe\xa4plan\xa1x\xa6worker\x00"


@pytest.mark.parametrize(
    ("note", "text"), [("text", "a note is bytes, not str"), (bytes(wire.LONGEST_NOTE + 1), "at most")]
)
def test_a_note_is_bytes_and_bounded(worker: PrefillWorker, note: Any, text: str) -> None:
    with pytest.raises(errors.BadRequestError, match=text):
        worker.hold("r", note=note)
    worker.open("s", (0, 4))
    with pytest.raises(errors.BadRequestError, match=text):
        worker.offer("s", (0, 4), {}, last=True, note=note)


def test_the_longest_note_arrives(worker: PrefillWorker, caller: Caller) -> None:
    caller.hello()
    worker.hold("r", note=bytes(wire.LONGEST_NOTE))
    (kept,) = caller.ask(wire.Claim(1, ("r",))).answers
    assert caller.ask(wire.Done("r", kept.hold, 1)).note == bytes(wire.LONGEST_NOTE)


@pytest.fixture
def pulse(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers listen by the clock that the test sets."""
    monkeypatch.setattr("kvplan.runtime.prefill.half.LeaseClock", partial(LeaseClock, pulse=clock))


@pytest.mark.usefixtures("pulse")
def test_no_lease_runs_out_while_nobody_polls(clock: Clock, worker: PrefillWorker, caller: Caller) -> None:
    """A thread that got no core for longer than a lease has not heard the claims of that time."""
    caller.hello()
    worker.hold("r")
    number = hold_of(caller, "r")
    caller.line.send(wire.Claim(2, ("r",)))
    clock.time += 40
    assert caller.hear().answers == (wire.Claimed("r", number),)
    clock.time += 40
    worker.run_once()
    for _ in range(8):
        clock.time += LONGEST_PAUSE
        worker.run_once()
        assert worker.released() == []
    clock.time += LONGEST_PAUSE
    worker.run_once()
    assert [(one.request, one.why) for one in worker.released()] == [("r", "expired")]


def test_no_lease_runs_out_while_its_renewal_may_lie_unheard(
    worker: PrefillWorker, caller: Caller, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While messages wait, a lease lasts longer, but at most for one more lease: floods hold nothing."""
    caller.hello()
    worker.hold("r")
    hold_of(caller, "r")
    monkeypatch.setattr(ControlServer, "pending", lambda _: True)
    clock.time += 10
    worker.run_once()
    assert worker.released() == []
    clock.time += 10
    worker.run_once()
    assert [(one.request, one.why) for one in worker.released()] == [("r", "expired")]


def test_garbage_is_counted_and_harmless(worker: PrefillWorker, caller: Caller) -> None:
    caller.hello()
    for body in (b"", NESTED, NO_TEXT, seal(wire.Done("r", 1, 1))[:-1]):
        caller.line.transmit(body if body.startswith(MAGIC) else MAGIC + checksum(body) + body)
    assert caller.ask(wire.Claim(1, ())) == wire.ClaimAnswers(1, 10, ())
    assert worker.counters.snapshot()["messages"]["malformed"] == 4  # type: ignore[index, call-overload]


UPPER = """kvplan: 1
model: upper
title: Two layers of four have a cache
dtype: bf16
query_heads: 4
layers: 4
caches:
  full: {kind: gqa, layers: [0, 1], heads: 1, dim: 2}
"""


def test_a_worker_that_nobody_reads_takes_the_calls_that_others_take(tmp_path: Path) -> None:
    """A caller of all workers of an engine does not ask which of them is read."""
    (tmp_path / "upper.yaml").write_text(UPPER)
    half = compile_pair(load((), (tmp_path,)), "upper", "tp=1,pp=2", "tp=1").plan
    pool = views(half.prefill, 1, {})
    with closing(PrefillWorker(half, 1, pool, InMemory(Hub()), identity=PREFILL, keys=Plain())) as worker:
        worker.hold("whole")
        worker.withdraw("whole")
        worker.open("fed", (0, 4))
        worker.offer("fed", (0, 4), last=True)
        worker.withdraw("fed")
        worker.decline("never")
        ended = [("whole", "finished"), ("fed", "finished")]
        assert [(one.request, one.why) for one in worker.released()] == ended


def test_the_wrong_order(worker: PrefillWorker) -> None:
    with pytest.raises(errors.HandleError, match="cannot be offered"):
        worker.offer("r", (0, 4))
    worker.hold("whole")
    with pytest.raises(errors.BadRequestError, match="held as a whole"):
        worker.offer("whole", (0, 4))
    with pytest.raises(errors.HandleError, match="is held: use its name again when"):
        worker.decline("whole")
    worker.open("r", (0, 8))
    with pytest.raises(errors.HandleError):
        worker.hold("r")
    with pytest.raises(errors.BadRequestError, match="was opened for tokens"):
        worker.offer("r", (0, 9))
    worker.offer("r", (0, 8), last=True)
    with pytest.raises(errors.BadRequestError, match="after the last one"):
        worker.offer("r", (0, 8))
    for name in ("", 5, "x" * 300):
        with pytest.raises(errors.BadRequestError):
            worker.hold(name)  # type: ignore[arg-type]
    with pytest.raises(errors.HandleError, match="2 held: withdraw them, or wait"):
        worker.suspend()


def test_what_counts_against_the_limit_is_what_the_gauge_counts() -> None:
    pool, given = views(ONE.prefill, 0, memory(Shape(1), Model(), 0)), {"limits": Limits(requests=2), "start": False}
    with closing(PrefillWorker(ONE, 0, pool, InMemory(Hub()), identity=PREFILL, keys=Plain(), **given)) as worker:  # type: ignore[arg-type]
        held = lambda: worker.counters.snapshot()["holds"]  # noqa: E731
        worker.hold("a")
        worker.hold("b")
        worker.withdraw("a")
        worker.withdraw("b")
        assert held() == 2
        with pytest.raises(errors.LimitedError, match="not yet taken from released"):
            worker.hold("c")
        assert len(worker.released()) == 2
        assert held() == 0
        worker.hold("c")
        assert held() == 1


def test_the_pool_is_the_workers_own(worker: PrefillWorker) -> None:
    worker.suspend()
    other = views(WIDE.decode, 1, memory(Shape(2), Model(), 1))
    with pytest.raises(errors.RegisterError, match="call views again"):
        worker.resume(other)


def test_a_suspended_worker_asks_to_wait(worker: PrefillWorker, caller: Caller) -> None:
    caller.hello()
    worker.suspend()
    assert caller.hello().again
    with pytest.raises(errors.HandleError, match="is suspended"):
        worker.hold("r")
    worker.resume(views(ONE.prefill, 0, memory(Shape(1), Model(), 0, logical=20)))
    card = caller.hello()
    assert (card.generation, card.count[0]) == (1, 20)


def blocks(*ids: int) -> Any:
    return {"kv": Blocks(0, np.array(ids, np.int64)), "state": Slot(3, 8)}


BAD: dict[str, tuple[Any, str]] = {
    "no mapping": ([1], "a mapping by group, not list"),
    "unknown group": ({"vk": Blocks(0, np.array([1]))}, "no group 'vk'"),
    "beyond the pool": (blocks(40), "the pool has 40"),
    "another sort": ({"kv": Slot(1, 8)}, "give Blocks, not Slot"),
}


@pytest.mark.parametrize("name", BAD)
def test_tables_of_ones_own_are_checked_at_once(worker: PrefillWorker, name: str) -> None:
    tables, text = BAD[name]
    with pytest.raises(errors.BadRequestError, match=text):
        worker.hold("r", tables)
    worker.open("s", (0, 8))
    with pytest.raises(errors.BadRequestError, match=text):
        worker.offer("s", (0, 8), tables)


def test_an_event_can_be_asked(worker: PrefillWorker) -> None:
    with pytest.raises(errors.BadRequestError, match="query"):
        worker.hold("r", after=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("addresses", [(), ("a", "b"), (5,)])
def test_one_address_for_each_worker(worker: PrefillWorker, addresses: Any) -> None:
    with pytest.raises(errors.HandshakeError, match="this side has 1 workers"):
        worker.announce(addresses)
