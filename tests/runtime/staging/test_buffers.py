"""The holders of a stage's buffers, and the threads that copy."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from kvplan.runtime.clock import LONGEST_STEP
from kvplan.runtime.errors import LimitedError, RegisterError
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.staging import buffers, views
from kvplan.runtime.staging.buffers import BUFFERS, SHARE, THREADS, Stage, StageBuffers

SIZE = BUFFERS * 4096


class Transport:
    """Remembers what was registered."""

    def __init__(self) -> None:
        self.registered = list[tuple[np.ndarray, str]]()

    def register(self, regions: np.ndarray, mem_type: str) -> None:
        self.registered.append((regions, mem_type))


def geometry(devices: tuple[int, ...] = (0,)) -> Geometry:
    every = np.ones(len(devices), np.int64)
    memory = np.zeros(64, np.uint8)
    regions = np.array([[memory.ctypes.data, 64, device] for device in devices])
    return Geometry(every, every, every, every, np.array(devices), every * 0, regions, ("DRAM",) * len(devices))


class Rig:
    def __init__(self, size: int = SIZE) -> None:
        self.transport, self.copied = Transport(), threading.Semaphore(0)
        self.stage = Stage(size, self.transport, geometry(), self.copied.release).of(("DRAM", 0))  # type: ignore[arg-type]
        self.stage.open()


@pytest.mark.parametrize("size", [-1, 1.5, True, "64"])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    with pytest.raises(LimitedError, match="stage_bytes"):
        Stage(size, Transport(), geometry(), lambda: None)  # type: ignore[arg-type]


def test_no_buffers_where_there_is_no_stage() -> None:
    assert Stage(0, Transport(), geometry(), print).buffer_bytes == 0  # type: ignore[arg-type]


def test_every_memory_of_a_pool_has_buffers_of_its_own() -> None:
    transport, host = Transport(), ("DRAM", 0)
    stage = Stage(SIZE, transport, geometry((0, 1)), print)  # type: ignore[arg-type]
    stage.open()
    assert [(regions[0, 1:].tolist(), mem_type) for regions, mem_type in transport.registered] == [
        ([SIZE, device], "DRAM") for device in (0, 1)
    ]
    lent = [stage.of(host).borrow(number, "p") for number in range(SHARE)]
    assert all(lent)
    assert stage.of(host).borrow("more", "p") == 0
    other = stage.of(("DRAM", 1)).borrow("more", "p")
    assert other > 0
    found = stage.inspected()
    assert (len(found.lent), len(found.free), found.waiting) == (SHARE + 1, 2 * BUFFERS - SHARE - 1, ("p",))
    for buffer in lent:
        assert buffer > 0
        stage.of(host).keep(buffer)
    assert stage.stuck("p")
    assert not stage.exhausted
    stage.of(("DRAM", 1)).keep(other)
    assert dict(stage.inspected().kept) == {"p": SHARE + 1}
    stage.close()


def test_memory_is_taken_and_registered_once() -> None:
    rig = Rig()
    rig.stage.open()
    ((regions, mem_type),) = rig.transport.registered
    found = sorted(rig.stage.borrow(number, str(number)) for number in range(BUFFERS))
    assert (regions[0, 1:].tolist(), mem_type) == ([SIZE, 0], "DRAM")
    assert found == [int(regions[0, 0]) + number * 4096 for number in range(BUFFERS)]


def test_who_asked_first_is_served_first() -> None:
    stage = Rig().stage
    lent = [stage.borrow(number, str(number)) for number in range(BUFFERS)]
    assert stage.borrow("second", "second") == 0
    assert stage.borrow("third", "third") == 0
    stage.begin()
    stage.give_back(lent[3], kept=False)  # type: ignore[arg-type]
    assert stage.borrow("third", "third") == 0
    assert stage.borrow("second", "second") is lent[3]


def test_no_peer_has_more_than_half_and_others_pass_by() -> None:
    stage = Rig().stage
    lent = [stage.borrow(number, "frozen") for number in range(BUFFERS)]
    assert [buffer == 0 for buffer in lent] == [number >= SHARE for number in range(BUFFERS)]
    assert stage.borrow("other", "other") > 0
    stage.give_back(lent[0], kept=False)  # type: ignore[arg-type]
    assert stage.borrow("late", "frozen") == 0
    assert stage.borrow(SHARE, "frozen") is lent[0]


def test_who_does_not_wait_any_more_holds_up_nobody() -> None:
    stage = Rig().stage
    lent = [stage.borrow(number, str(number)) for number in range(BUFFERS)]
    assert [stage.borrow("second", "second"), stage.borrow("third", "third")] == [0, 0]
    stage.begin()
    stage.withdraw("second")
    stage.give_back(lent[0], kept=False)  # type: ignore[arg-type]
    assert stage.borrow("third", "third") is lent[0]


def test_a_round_lends_no_more_than_there_are_buffers() -> None:
    stage = Rig().stage
    for number in range(BUFFERS):
        buffer = stage.borrow(number, str(number))
        assert buffer > 0
        stage.give_back(buffer, kept=False)
    assert stage.borrow("more", "more") == 0
    stage.begin()
    assert stage.borrow("more", "more") > 0


def test_memory_of_a_device_needs_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    device = replace(geometry(), mem_types=("VRAM",))
    stage = Stage(SIZE, Transport(), device, print)  # type: ignore[arg-type]
    with pytest.raises(RegisterError, match="torch, which is not installed"):
        stage.open()


def test_threads_that_copy_speak_of_the_device_first(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, did = list[str](), list[str]()
    monkeypatch.setattr(buffers, "enter", lambda _: entered.append(threading.current_thread().name))
    rig = Rig()
    assert "MainThread" in entered
    rig.stage.copy(lambda _: did.append(threading.current_thread().name), at_once=False).result(10)
    rig.stage.close()
    assert set(did) < set(entered)


class FakeCuda:
    """A fake of torch's functions for a stage on a device, which records the calls. A stream is its own context."""

    uint8 = "uint8"

    def __init__(self) -> None:
        self.cuda, self.did = self, list[str]()

    def Stream(self, device: str) -> FakeCuda:  # noqa: N802  # as torch has it
        self.did.append(f"stream of {device}")
        return self

    def stream(self, stream: FakeCuda) -> FakeCuda:
        return stream

    def __enter__(self) -> None:
        self.did.append("begin")

    def __exit__(self, *_: object) -> None:
        self.did.append("end")

    def empty(self, size: int, dtype: str, device: str) -> np.ndarray:
        self.did.append(f"memory of {device}")
        return np.zeros(size, np.uint8)

    def synchronize(self) -> None:
        self.did.append("wait")


def test_memory_of_a_device_is_of_the_stage_s_own_stream_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", torch)
    stage, transport = on_device()
    assert torch.did == ["stream of cuda:2", "begin", "memory of cuda:2", "end", "wait"]
    assert [(regions[0, 2], mem_type) for regions, mem_type in transport.registered] == [(2, "VRAM")]
    stage.close()


def test_a_kernel_is_tried_on_the_device_of_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeCuda()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(views, "copier", lambda where: torch.did.append(f"kernel on {where}"))
    stage, _ = on_device()
    assert torch.did[1:-1] == ["begin", "memory of cuda:2", "kernel on cuda:2", "end"]
    stage.close()


def on_device() -> tuple[StageBuffers, Transport]:
    transport, copied = Transport(), threading.Event()
    stage = Stage(SIZE, transport, replace(geometry((2,)), mem_types=("VRAM",)), copied.set)  # type: ignore[arg-type]
    stage.open()
    return stage.of(("VRAM", 2)), transport


def test_whoever_polls_waits_for_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", FakeCuda())
    stage, _ = on_device()
    did = list[str]()
    stage.copy(lambda _: did.append(threading.current_thread().name), at_once=True).result(10)
    stage.close()
    assert did[0].startswith("kvplan-stage")


def test_stuck_while_all_buffers_belong_to_slices_that_were_given_up() -> None:
    stage = Rig().stage
    lent = [stage.borrow(number, str(number)) for number in range(BUFFERS)]
    for buffer in lent[1:]:
        stage.keep(buffer)  # type: ignore[arg-type]
    assert not stage.stuck("other")
    stage.keep(lent[0])  # type: ignore[arg-type]
    assert stage.stuck("other")
    stage.give_back(lent[0], kept=True)  # type: ignore[arg-type]
    assert not stage.stuck("other")


def test_stuck_for_a_peer_whose_share_belongs_to_slices_that_were_given_up() -> None:
    stage = Rig().stage
    for number in range(SHARE):
        stage.keep(stage.borrow(number, "frozen"))  # type: ignore[arg-type]
    assert [stage.stuck("frozen"), stage.stuck("other")] == [True, False]


def test_as_many_copies_as_there_are_threads_are_made_at_once_and_told_of() -> None:
    rig, made, here = Rig(), list[bool](), threading.current_thread()
    together = threading.Barrier(THREADS)

    def copy(_: object) -> None:
        together.wait(10)
        made.append(threading.current_thread() is here)

    for future in [rig.stage.copy(copy, False) for _ in range(2 * THREADS)]:
        future.result(20)
    assert all(rig.copied.acquire(timeout=10) for _ in range(2 * THREADS))
    assert made == 2 * THREADS * [False]
    assert rig.stage.copy(lambda _: made.append(threading.current_thread() is here), True).done()
    assert made[-1]
    rig.stage.close()


def test_a_stage_whose_threads_cannot_be_started_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """No copy is refused later: its buffer and its blocks would be somebody else's when a thread made it after all."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refused)
        with pytest.raises(RegisterError, match="raise the limit"):
            Rig()


@pytest.mark.parametrize("at_once", [True, False])
def test_what_a_copy_raises_is_its_future_s(at_once: bool) -> None:
    rig = Rig()
    future = rig.stage.copy(lambda _: 1 // 0, at_once)  # type: ignore[arg-type, return-value]
    with pytest.raises(ZeroDivisionError):
        future.result(10)
    rig.stage.close()


def test_closing_waits_for_what_is_copied_and_drops_the_rest() -> None:
    rig, begun, go, made = Rig(), threading.Semaphore(0), threading.Event(), list[str]()

    def slow(_: object) -> None:
        begun.release()
        go.wait(10)
        made.append("slow")

    first = [rig.stage.copy(slow, False) for _ in range(THREADS)]
    last = rig.stage.copy(lambda _: made.append("last"), False)
    assert all(begun.acquire(timeout=10) for _ in first)
    closing = threading.Thread(target=rig.stage.close)
    closing.start()
    while not last.cancelled():
        pass
    assert not any(future.done() for future in first)
    go.set()
    closing.join(10)
    assert (made, all(future.done() for future in first)) == (THREADS * ["slow"], True)


def test_a_peer_is_stuck_for_as_long_as_rounds_have_seen_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause of who polls does not count: the wire may have done with its buffers meanwhile."""
    clock = [0.0]
    monkeypatch.setattr(buffers, "now", lambda: clock[0])
    stage = Rig().stage
    lent = [stage.borrow(number, "peer") for number in range(SHARE)]

    def after(seconds: float) -> float:
        clock[0] += seconds
        stage.begin()
        return stage.stuck_for("peer")

    assert after(5.0) == 0.0
    for buffer in lent:
        stage.keep(buffer)  # type: ignore[arg-type]
    assert LONGEST_STEP == 0.1
    assert [round(after(seconds), 3) for seconds in (5.0, 0.02, 0.03, 60.0)] == [0.0, 0.02, 0.05, 0.15]
    stage.give_back(lent[0], kept=True)  # type: ignore[arg-type]
    assert after(0.01) == 0.0
