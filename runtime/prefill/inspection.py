"""What a prefill worker has, as an Inspection. Its owner alone calls this."""

from __future__ import annotations

from dataclasses import replace

from kvplan.runtime.inspection import ClientState, Inspection, SourceState, WriteState
from kvplan.runtime.prefill.driver import PrefillDriver
from kvplan.runtime.protocol.readers import Session
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.transfer.executor import ExecutorContext


def inspected(worker: Inspection, driver: PrefillDriver, context: ExecutorContext) -> Inspection:
    """What a `worker` has, with what its prefill half has."""
    core, state = driver.core, driver.core.state
    pending = {one.request: None for one in driver.watched.pending()}
    return replace(
        worker,
        peer_stages=driver.peers.stages(),
        bytes_in_flight=context.admission.in_flight(),
        slices=context.inspected(),
        checksums=len(core.comparisons),
        clients=tuple(map(_client, state.sessions.values())),
        holds=state.leases.holds(),
        sources=tuple(map(_source, state.sources.values())),
        unannounced=tuple({**pending, **core.announcer.changed}),
        writes=_writes(driver),
        packs=len(driver.packs),
        untaken=tuple(state.leases.past.unreported),
    )


def _client(session: Session) -> ClientState:
    reader, claimant = session.reader, session.reader.claimant
    peer = None if reader.target is None else reader.target.peer
    claims = tuple(session.claims)
    return ClientState(
        reader.key, reader.name, claimant.run, claimant.worker, claimant.plan, peer, session.heard, claims
    )


def _source(source: SourceRequest) -> SourceState:
    return SourceState(source.request, source.pin, source.whole, len(source.chunks), source.ready)


def _writes(driver: PrefillDriver) -> tuple[WriteState, ...]:
    return tuple(
        WriteState(write.request.id, write.reader.key, write.phase.name.lower(), driver.mover.under_way(write.key))
        for write in driver.core.writes
    )
