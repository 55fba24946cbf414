"""What a decode worker has, as an Inspection. Its owner alone calls this."""

from __future__ import annotations

from collections.abc import Iterator

from kvplan.runtime.decode.engines import PrefillEngine, PrefillEngines
from kvplan.runtime.decode.transfer import PeerProgress, Transfer
from kvplan.runtime.decode.transfers import TransferTable
from kvplan.runtime.inspection import Inspection, PartState, PrefillEngineState, RequestState
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.transport.base import Transport


def inspected(
    name: str, now: float, transport: Transport, stage: Stage, transfers: TransferTable, engines: PrefillEngines
) -> Inspection:
    """The decode worker called `name`."""
    return Inspection(
        name=name,
        now=now,
        transport=transport.name,
        peers=frozenset(transport.peers),
        met=engines.met,
        stage=stage.inspected(),
        bytes_in_flight=transfers.admission.in_flight(),
        slices_waiting=transfers.admission.waiting(),
        checksums=transfers.summing,
        engines=tuple(_engines(engines)),
        requests=tuple(map(_request, transfers.running.values())),
        failed=tuple(map(_request, transfers.quarantine)),
        ended=tuple(transfer.request.id for transfer in transfers.ended),
        written=transfers.ledger.written(),
        quarantined=frozenset(
            (arena, block) for arena, blocks in transfers.ledger.quarantined().items() for block in blocks
        ),
    )


def _engines(engines: PrefillEngines) -> Iterator[PrefillEngineState]:
    groups = {"connected": engines.live.values(), "replanned": engines.replanned, "retired": engines.retired}
    return (_engine(engine, status) for status, some in groups.items() for engine in some)


def _engine(engine: PrefillEngine, status: str) -> PrefillEngineState:
    mode = "push" if engine.push else "pull"
    return PrefillEngineState(engine.name, engine.card.run, engine.plan.digest, mode, status, frozenset(engine.peers))


def _request(transfer: Transfer) -> RequestState:
    parts = tuple(map(_part, transfer.parts))
    return RequestState(transfer.request.id, transfer.engine.name, transfer.deadline, parts)


def _part(part: PeerProgress) -> PartState:
    worker, phase = part.connection.worker, part.phase.name.lower()
    return PartState(worker, phase, part.pin, part.arrived, part.writes, len(part.slices))
