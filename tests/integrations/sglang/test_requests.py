"""Requests of SGLang's over real workers of the runtime: chunks, prefixes, auxiliary rows, aborts, and what fails."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np
import pytest
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world
from tests.slowness import slowness

from kvplan.integrations.sglang.aux import AuxRows
from kvplan.integrations.sglang.bootstrap import Bootstrap, PrefillRecord, register
from kvplan.integrations.sglang.requests import (
    EngineMeetings,
    HeldRequests,
    ReceivedRequest,
    Receiving,
    SentRequest,
)
from kvplan.integrations.sglang.states import RoomState
from kvplan.integrations.sglang.tables import RequestTables
from kvplan.integrations.shared.config import read_config
from kvplan.integrations.shared.names import again, prompt_digest
from kvplan.integrations.shared.note import PrefillNote
from kvplan.plan.block_tables import blocks
from kvplan.runtime import PrefillWorker, Slot
from kvplan.runtime.control.keys import Plain
from kvplan.runtime.errors import NoteError, WithdrawnError
from kvplan.runtime.prefill.events import ComputeEvent

TOKENS, ROOM, PAGE = 45, 77, 4
PROMPT = range(TOKENS)
NAME = f"{ROOM}#{prompt_digest(PROMPT)}"
SIZES = (16, 16, 16, 16, 64, 16)


class Pair:
    """Two prefill workers and a decode worker, a bootstrap service, and auxiliary rows of six buffers on each side."""

    def __init__(self, made: World, service: Bootstrap, timeout: float, connect: float) -> None:
        self.made, self.where = made, f"127.0.0.1:{service.port}"
        register(self.where, PrefillRecord(made.prefill[0].address), 5, Plain(True))
        self.rows = [[np.zeros((8, size), np.uint8) for size in SIZES] for _ in range(3)]
        aux = [AuxRows(tuple(buffer.ctypes.data for buffer in rows), SIZES, 5) for rows in self.rows]
        tables = [RequestTables(side, ("mamba",)) for side in (made.plan.prefill, made.plan.decode)]
        self.held = [HeldRequests(worker, tables[0], rows) for worker, rows in zip(made.prefill, aux, strict=False)]
        self.threads = ThreadPoolExecutor(2)
        made.decode[0].start()
        engines = EngineMeetings(made.decode[0], read_config({"mode": made.mode, "connect": connect}), self.threads)
        self.shared = Receiving(made.decode[0], engines, tables[1], aux[2], timeout)
        self.request = replace(ask(made, (0, TOKENS)), id=NAME)

    def senders(self, row: int = 3) -> list[SentRequest]:
        made = [SentRequest(held, ROOM) for held in self.held]
        for sender in made:
            sender.tell_prompt(PROMPT)
            sender.begin(row)
        return made

    def receiver(self, where: str = "", prompt: Sequence[int] = PROMPT) -> ReceivedRequest:
        made = ReceivedRequest(self.shared, where or self.where, ROOM)
        made.tell_prompt(prompt)
        made.begin()
        return made

    def send(self, senders: list[SentRequest], first: int, end: int) -> None:
        """Send a chunk as SGLang does: its pages, and the slots of states with the last chunk."""
        pages = blocks(self.request.prefill["kv"]).ids[first // PAGE : -(-end // PAGE)]
        for sender in senders:
            last = end == TOKENS
            sender.offer(pages, [[slot(self.request.prefill)]] if last else None, end - first, last=last)

    def receive(
        self, receiver: ReceivedRequest, prefix: int = 0, row: int = 5, after: ComputeEvent | None = None
    ) -> None:
        until(lambda: receiver.poll() in (RoomState.WAITING, RoomState.FAILED))
        assert receiver.state is RoomState.WAITING, receiver.error
        pages = blocks(self.request.decode["kv"]).ids[prefix // PAGE :]
        receiver.receive(pages, [[slot(self.request.decode)]], prefix, row, after)


def slot(tables: object) -> int:
    assert isinstance(tables, dict)
    assert isinstance(tables["state"], Slot)
    return tables["state"].slot


def over(*requests: SentRequest | ReceivedRequest) -> list[RoomState]:
    """How requests ended, once all of them have."""
    ends = (RoomState.FAILED, RoomState.SUCCESS)
    until(lambda: all(request.poll() in ends for request in requests))
    return [request.state for request in requests]


def pairs(mode: str, timeout: float = 20, lease: float = 5, connect: float = 20) -> Iterator[Pair]:
    with ExitStack() as stack:
        made = stack.enter_context(closing(world(Shape(2), Shape(1), mode=mode, lease=lease)))
        service = stack.enter_context(closing(Bootstrap("127.0.0.1", 0, Plain(True))))
        pair = Pair(made, service, timeout, connect)
        stack.callback(pair.threads.shutdown)
        yield pair


@pytest.fixture(params=["pull", "push"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    yield from pairs(request.param)


def test_a_request_arrives_with_its_auxiliary_row_and_each_side_says_so(pair: Pair) -> None:
    filled(pair.made, pair.request)
    receiver, senders = pair.receiver(), pair.senders()
    pair.receive(receiver)
    for buffer in (*pair.rows[0], *pair.rows[1]):
        buffer[3] = 9
    for first, end in ((0, 16), (16, 32), (32, TOKENS)):
        assert [sender.poll() for sender in senders] == [RoomState.TRANSFERRING] * 2
        pair.send(senders, first, end)
    assert over(receiver, *senders) == [RoomState.SUCCESS] * 3
    check(pair.made, 0, pair.request)
    for buffer, size in zip(pair.rows[2], SIZES, strict=True):
        assert buffer[5].tolist() == [9] * size
        assert buffer.sum() == 9 * size


def test_a_prompt_without_its_last_token_arrives_by_the_name_of_the_whole_prompt(pair: Pair) -> None:
    """Decode computes that token, as vLLM's does, and goes on from the state before it."""
    filled(pair.made, pair.request)
    senders, end = [SentRequest(held, ROOM) for held in pair.held], TOKENS - 1
    for sender in senders:
        sender.tell_prompt(PROMPT)
        sender.tell_length(end)
        sender.begin(3)
    pages = blocks(pair.request.prefill["kv"]).ids[: -(-end // PAGE)]
    for sender in senders:
        sender.offer(pages, [[slot(pair.request.prefill)]], end, last=True)
    peer = pair.shared.engines.meeting(pair.where).result(10)
    states = {"state": Slot(slot(pair.request.decode), end)}
    request = replace(pair.request, tokens=(0, end), prefill={}, decode={**pair.request.decode, **states})
    transfer = pair.made.decode[0].open(request, 20, peer=peer.name)
    until(lambda: transfer.ended)
    assert transfer.error is None
    assert over(*senders) == [RoomState.SUCCESS] * 2


def test_a_prefix_that_decode_has_is_left_alone(pair: Pair) -> None:
    filled(pair.made, pair.request)
    receiver, senders = pair.receiver(), pair.senders()
    pair.receive(receiver, prefix=16)
    pair.send(senders, 0, TOKENS)
    assert over(receiver, *senders) == [RoomState.SUCCESS] * 3
    check(pair.made, 0, replace(pair.request, tokens=(16, TOKENS)))


class Step:
    """A step of the engine that runs on a device, until it is `done`."""

    def __init__(self) -> None:
        self.done = False

    def query(self) -> bool:
        return self.done


class Broken:
    """An event of a device that has failed."""

    def query(self) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


def test_pages_are_written_once_the_device_has_come_to_them(pair: Pair) -> None:
    """A step that runs yet may write pages for the request that had them before."""
    filled(pair.made, pair.request)
    receiver, senders, step = pair.receiver(), pair.senders(), Step()
    pair.receive(receiver, after=step)
    pair.send(senders, 0, TOKENS)
    for _ in range(50):
        assert receiver.poll() is RoomState.TRANSFERRING
        assert not pair.made.decode[0].running()
    step.done = True
    assert over(receiver, *senders) == [RoomState.SUCCESS] * 3
    check(pair.made, 0, pair.request)


def test_a_request_that_waits_for_the_device_can_be_aborted(pair: Pair) -> None:
    receiver, step = pair.receiver(), Step()
    pair.senders()
    pair.receive(receiver, after=step)
    receiver.abort()
    step.done = True
    assert over(receiver) == [RoomState.FAILED]
    assert receiver.settled


def test_a_request_that_prefill_aborts_fails_on_both_sides(pair: Pair) -> None:
    receiver, senders = pair.receiver(), pair.senders()
    pair.receive(receiver)
    pair.send(senders, 0, 16)
    for sender in senders:
        sender.abort()
    assert over(receiver, *senders) == [RoomState.FAILED] * 3
    # Decode hears that prefill gave it up, or, if it was just about to read, that the hold has ended.
    assert isinstance(receiver.error, WithdrawnError)
    assert str(senders[0].error) == f"request {NAME} was aborted"


def test_a_request_that_decode_aborts_frees_prefill_s_pages(pair: Pair) -> None:
    receiver, senders = pair.receiver(), pair.senders()
    pair.receive(receiver)
    receiver.abort()
    assert over(receiver) == [RoomState.FAILED]
    settle(receiver)
    pair.send(senders, 0, TOKENS)
    assert over(*senders) == [RoomState.SUCCESS] * 2, "decode needs nothing of it"


def pushed(pair: Pair) -> ReceivedRequest:
    """A request whose first chunk every prefill worker writes; no write ends while decode is frozen."""
    pair.made.hub.frozen.add(pair.made.decode[0].inspect().transport)
    receiver = pair.receiver()
    pair.receive(receiver)
    until(lambda: all(map(_writes, pair.made.prefill)))
    return receiver


def _writes(worker: PrefillWorker) -> bool:
    return any(write.under_way for write in worker.inspect().writes)


def end_hold(pair: Pair, cause: str, receiver: ReceivedRequest, senders: list[SentRequest]) -> None:
    """End the hold of a request on every prefill worker."""
    if cause == "expire":
        receiver.abort()
    for sender, worker in zip(senders, pair.made.prefill, strict=True):
        if cause == "drain":
            worker.drain(0)
        elif cause == "event":
            sender.offer(blocks(pair.request.prefill["kv"]).ids[4:8], None, 16, last=False, after=Broken())
        elif cause == "abort":
            sender.abort()
    until(lambda: not any(worker.inspect().sources for worker in pair.made.prefill))


@pytest.mark.parametrize("aborted", [True, False])
def test_a_client_is_answered_while_pages_may_still_be_written(aborted: bool) -> None:
    """A write that never ends does not keep a client waiting, only the pages."""
    for pair in pairs("push", timeout=20 if aborted else 0.5):
        senders = pair.senders()
        pair.send(senders, 0, 16)
        receiver = pushed(pair)
        if aborted:
            receiver.abort()
        assert over(receiver) == [RoomState.FAILED]
        assert not receiver.settled
        pair.made.hub.frozen.clear()
        settle(receiver)
        pair.send(senders, 16, TOKENS)
        assert over(*senders) == [RoomState.SUCCESS] * 2


def settle(receiver: ReceivedRequest) -> None:
    """Forget a request as SGLang does, once nothing can write to its pages."""
    until(lambda: receiver.settled)
    receiver.close()


CAUSES = {
    "expire": "blocks freed early (expired)",
    "drain": "cannot be offered",
    "event": "cannot be offered",
    "abort": "was aborted",
}


@pytest.mark.parametrize("cause", CAUSES)
def test_a_request_whose_hold_has_ended_fails_and_waits_for_no_push_to_a_frozen_engine(cause: str) -> None:
    for pair in pairs("push", lease=0.5 if cause == "expire" else 5):
        senders = pair.senders()
        pair.send(senders, 0, 16)
        end_hold(pair, cause, pushed(pair), senders)
        pair.send(senders, 32, TOKENS)
        assert over(*senders) == [RoomState.FAILED] * 2
        assert CAUSES[cause] in str(senders[0].error)
        assert all(worker.inspect().writes for worker in pair.made.prefill)
        pair.made.hub.frozen.clear()


def test_a_prompt_that_nobody_asks_for_is_held_for_a_lease_from_its_last_chunk() -> None:
    lease = 2 * slowness()
    for pair in pairs("pull", lease=lease):
        filled(pair.made, pair.request)
        senders = pair.senders()
        time.sleep(0.8 * lease)
        pair.send(senders, 0, TOKENS)
        time.sleep(0.5 * lease)
        assert [sender.poll() for sender in senders] == [RoomState.TRANSFERRING] * 2
        receiver = pair.receiver()
        pair.receive(receiver)
        assert over(receiver, *senders) == [RoomState.SUCCESS] * 3


def test_auxiliary_data_of_another_size_fails_the_request(pair: Pair) -> None:
    filled(pair.made, pair.request)
    receiver, senders = pair.receiver(), pair.senders()
    for held in pair.held:
        held.aux = replace(held.aux, sizes=(8, *SIZES[1:]))
    pair.receive(receiver)
    pair.send(senders, 0, TOKENS)
    assert over(receiver) == [RoomState.FAILED]
    assert isinstance(receiver.error, NoteError)
    assert "auxiliary rows of 136 bytes came with the request, ours have 144" in str(receiver.error)


def attached(pair: Pair, note: bytes) -> ReceivedRequest:
    """A request that an engine of another kind holds, with this note, and that decode finds without a bootstrap."""
    filled(pair.made, pair.request)
    for worker in pair.made.prefill:
        worker.hold(NAME, pair.request.prefill, tokens=(0, TOKENS), note=note)
    receiver = pair.receiver(pair.made.prefill[0].address)
    pair.receive(receiver)
    return receiver


def test_a_first_token_is_taken_from_an_engine_that_keeps_no_rows(pair: Pair) -> None:
    """Logprobs that the engine does not send become NaN, not the certainty of the token."""
    receiver = attached(pair, PrefillNote(300).encode())
    assert over(receiver) == [RoomState.SUCCESS]
    check(pair.made, 0, pair.request)
    row = [buffer[5].tobytes() for buffer in pair.rows[2]]
    assert [int.from_bytes(row[n], "little") for n in (0, 1, 3, 5)] == [300, 0, 300, ROOM]
    first = struct.unpack_from("<f", row[2])
    assert all(map(math.isnan, (*first, *struct.unpack("<16f", row[4]))))


@pytest.mark.parametrize("held", [True, False])
def test_a_prompt_that_prefill_begins_again_is_asked_for_by_its_second_name(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, held: bool
) -> None:
    """vLLM preempts a prompt that it prefills: what it offered first counts no more."""
    monkeypatch.setattr("kvplan.integrations.sglang.requests.REMADE", 1.0)
    filled(pair.made, pair.request)
    for worker in pair.made.prefill:
        worker.open(NAME, (0, TOKENS))
    receiver = pair.receiver(pair.made.prefill[0].address)
    pair.receive(receiver)
    for worker in pair.made.prefill:
        worker.withdraw(NAME)
        if held:
            worker.hold(again(NAME), pair.request.prefill, tokens=(0, TOKENS), note=PrefillNote(300).encode())
    assert over(receiver) == [RoomState.SUCCESS if held else RoomState.FAILED]
    if held:
        check(pair.made, 0, pair.request)


def test_a_first_logprob_is_taken_if_it_is_said(pair: Pair) -> None:
    receiver = attached(pair, PrefillNote(300, -0.5).encode())
    assert over(receiver) == [RoomState.SUCCESS]
    assert struct.unpack_from("<f", pair.rows[2][2][5].tobytes()) == (-0.5,)


@pytest.mark.parametrize("note", [b"", b"no map", PrefillNote(1).encode() + b"more"])
def test_a_request_without_a_readable_note_fails_and_no_row_is_written(pair: Pair, note: bytes) -> None:
    receiver = attached(pair, note)
    assert over(receiver) == [RoomState.FAILED]
    assert isinstance(receiver.error, NoteError)
    assert not any(buffer.any() for buffer in pair.rows[2])


def test_another_prompt_in_the_same_room_never_arrives() -> None:
    for pair in pairs("pull", timeout=0.5):
        filled(pair.made, pair.request)
        pair.send(pair.senders(), 0, TOKENS)
        receiver = pair.receiver(prompt=[*PROMPT[1:], 0])
        pair.receive(receiver)
        assert over(receiver) == [RoomState.FAILED]


def test_a_room_that_is_held_twice_fails_the_second_time(pair: Pair) -> None:
    pair.senders()
    assert over(*pair.senders()) == [RoomState.FAILED] * 2


def test_a_request_that_decode_never_asks_for_fails_after_its_lease() -> None:
    for pair in pairs("pull", lease=0.2):
        senders = pair.senders()
        pair.send(senders, 0, TOKENS)
        assert over(*senders) == [RoomState.FAILED] * 2
        assert str(senders[0].error) == f"request {NAME}: blocks freed early (expired)"


def test_a_request_that_prefill_never_sends_fails_in_time() -> None:
    for pair in pairs("pull", timeout=0.3):
        receiver = pair.receiver()
        pair.receive(receiver)
        assert over(receiver) == [RoomState.FAILED]


@pytest.mark.parametrize(
    ("where", "text"), [("10.0.0.1:8998", "is another machine, and there are no keys"), ("127.0.0.1:1", "within 1 s")]
)
def test_an_engine_that_cannot_be_met_fails_the_request(where: str, text: str) -> None:
    for pair in pairs("pull", connect=1):
        receiver = pair.receiver(where)
        assert over(receiver) == [RoomState.FAILED]
        assert text in str(receiver.error)


def test_an_engine_is_met_once_for_many_requests() -> None:
    for pair in pairs("pull"):
        engines = pair.shared.engines
        first = engines.meeting(pair.where)
        assert engines.meeting(pair.where) is first
        first.result(10)
        assert engines.meeting(pair.where) is first
        pair.made.decode[0].drop(first.result().name)
        assert engines.meeting(pair.where) is not first, "one that is lost is looked up and met again"
