"""What must hold whatever a schedule does, and what must be left of it: nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from tests.runtime.helpers.worlds import Truth, expect
from tests.runtime.simulation.channels import Late

from kvplan.runtime import DecodeWorker, InMemory, PrefillWorker, Request
from kvplan.runtime.decode.quarantine import FREE
from kvplan.runtime.staging.buffers import BUFFERS

if TYPE_CHECKING:
    from tests.runtime.simulation.engines import Engine, Engines, Work


def right(made: Engines, engine: Engine, number: int, request: Request, work: Work) -> None:
    """Every byte of a request that is done is there."""
    shape, given, tokens = made.shapes[1], request.decode, request.tokens
    want = expect(shape, made.model, number, work.content, given, tokens)
    ones = Truth(np.ones_like(work.content.k), np.ones_like(work.content.s))
    there = expect(shape, made.model, number, ones, given, tokens)
    for plane, array in engine.arrays[number].items():
        mask = there[plane] != 0
        assert np.array_equal(array[mask], want[plane][mask]), f"wrong bytes in {plane} of {request.id}"


def written(made: Engines, late: Late) -> Iterator[tuple[DecodeWorker, int, int]]:
    """The decode blocks (worker, arena, number) that a transfer writes."""
    spots = np.unique(late.target[:, 0])
    for engine in made.engines:
        for worker, arrays in zip(engine.workers, engine.arrays, strict=True):
            for plane, array in arrays.items():
                at = spots[(spots >= array.ctypes.data) & (spots < array.ctypes.data + array.nbytes)]
                kv = plane.startswith("kv")
                size = array.shape[1] * (made.shapes[1].ratio if kv else 1)
                for block in np.unique((at - array.ctypes.data) // size).tolist():
                    yield worker, 0 if kv else 1, block


def look(made: Engines) -> None:
    """No decode block is free while a transfer may write it."""
    for late in made.net.transfers:
        for worker, arena, block in written(made, late) if late.moving else ():
            state = worker._transfers.ledger._state[arena][block]
            assert state != FREE, f"block {block} is free and being written"


def lent(made: Engines) -> None:
    """No buffer of a stage is free while a transfer may write it, or reads it for its worker's own.

    Who is given up as silent may read on from what was packed for it: it is not told that it is right.
    """
    workers: list[DecodeWorker | PrefillWorker] = list(made.prefill)
    workers += [worker for engine in made.engines for worker in engine.workers]
    for late in made.net.transfers:
        for worker in workers if late.moving else ():
            own = late.source[:, 0] if late.agent is worker._transport else late.source[:0, 0]
            spots = np.concatenate((late.target[:, 0], own))
            for buffer in worker._stage._free:
                inside = (spots >= buffer.address) & (spots < buffer.address + worker._stage.buffer_bytes)
                assert not inside.any(), f"a free buffer at {buffer.address:#x} is read or written"


def unread(made: Engines, number: int, work: Work) -> None:
    """A released block is not read by a write of the prefill side any more."""
    for late in made.net.transfers:
        if late.moving and late.agent is made.prefill[number]._transport:
            for plane, array in made.prefill_arrays[number].items():
                at = late.source[:, 0] - array.ctypes.data
                kv = plane.startswith("kv")
                size = array.shape[1] * (made.shapes[0].ratio if kv else 1)
                blocks = set((at[(at >= 0) & (at < array.nbytes)] // size).tolist())
                mine = set(work.tables["kv"].ids.tolist()) if kv else {work.tables["state"].slot}
                assert not blocks & mine, f"{work.name} is released while it is written from"


def rested(worker: DecodeWorker) -> None:
    """Nothing is left at a decode worker but whom it knows."""
    transfers, engines = worker._transfers, worker._engines
    assert (worker.running(), worker.quarantined()) == (0, {})
    assert (list(transfers._ended), transfers.quarantine._transfers, engines.retired) == ([], {}, [])
    assert (transfers.admission.in_flight(), transfers.admission.waiting()) == (0, 0)
    assert not any(state.any() for state in transfers.ledger._state.values())
    assert not len(transfers._checksums)
    unused(worker)
    used = {peer for engine in engines.live.values() for peer in engine.peers}
    assert engines._peers == used == peers(worker)


def empty(worker: PrefillWorker) -> None:
    """Nothing is left at a prefill worker but whom it knows."""
    inbox, leases = worker._inbox, worker._leases
    assert (leases._pins, list(leases._untaken), leases._unreported, leases._just_released) == ({}, [], set(), [])
    assert (inbox.sources, inbox.writes._all, inbox._pending, inbox._changed) == ({}, {}, {}, {})
    assert (len(inbox._comparisons), len(inbox.packs)) == (0, 0)
    unused(worker)
    assert (worker._slices.in_flight(), worker._slices.waiting()) == (0, 0)
    assert not [client.key for client in inbox.clients if client.claims]
    assert peers(worker) == {client.push.peer for client in inbox.clients if client.push}


def unused(worker: DecodeWorker | PrefillWorker) -> None:
    """Every buffer of a worker's stage is there again, and nobody waits for one."""
    stage = worker._stage
    assert (stage._queue, stage._peers, +stage._kept) == ({}, {}, {})
    assert len(stage._free) == (0 if stage._maker is None else BUFFERS)
    assert all(copy.future.cancelled() for copy in stage._waiting)


def peers(worker: DecodeWorker | PrefillWorker) -> set[str]:
    """Whom the transport of a worker knows."""
    transport = worker._transport
    assert isinstance(transport, InMemory)
    return transport.peers
