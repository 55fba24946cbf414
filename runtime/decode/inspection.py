"""What a decode worker has, as an Inspection. Its owner alone calls this."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kvplan.runtime.decode.driver import DecodeDriver
from kvplan.runtime.decode.engines import PrefillEngine, PrefillEngines
from kvplan.runtime.inspection import (
    Inspection,
    PartState,
    PeerStageState,
    PrefillEngineState,
    RequestState,
)
from kvplan.runtime.protocol.loads import Load, LoadPart


def inspected(worker: Inspection, driver: DecodeDriver, engines: PrefillEngines) -> Inspection:
    """What a `worker` has, with what its decode half has."""
    loads = driver.core.loads
    return replace(
        worker,
        peer_stages=tuple(_peer_stages(engines)),
        bytes_in_flight=driver.admission.in_flight(),
        slices=driver.context.inspected(),
        checksums=len(driver.sums),
        engines=tuple(_engines(engines)),
        requests=tuple(_request(load, driver) for load in loads.running.values()),
        failed=tuple(_request(load, driver) for load in loads.quarantine),
        ended=tuple(transfer.request.id for transfer in driver.ended),
        written=loads.ledger.written(),
        quarantined=frozenset(
            (arena, block) for arena, blocks in loads.ledger.quarantined().items() for block in blocks
        ),
    )


def _peer_stages(engines: PrefillEngines) -> Iterator[PeerStageState]:
    return (one.stage.inspected(one.known.name) for engine in engines.every for one in engine.connections.values())


def _engines(engines: PrefillEngines) -> Iterator[PrefillEngineState]:
    groups = {"connected": engines.live.values(), "replanned": engines.replanned, "retired": engines.retired}
    return (_engine(engine, status) for status, some in groups.items() for engine in some)


def _engine(engine: PrefillEngine, status: str) -> PrefillEngineState:
    mode = "push" if engine.push else "pull"
    return PrefillEngineState(engine.name, engine.card.run, engine.plan.digest, mode, status, frozenset(engine.peers))


def _request(load: Load, driver: DecodeDriver) -> RequestState:
    parts = tuple(_part(part, driver) for part in load.parts)
    return RequestState(load.request.id, load.engine.name, load.deadline, parts)


def _part(part: LoadPart, driver: DecodeDriver) -> PartState:
    reads = driver.reads.left(part)
    return PartState(part.worker, part.phase.name.lower(), part.pin, part.arrived, part.writes, reads)
