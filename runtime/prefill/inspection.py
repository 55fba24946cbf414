"""What a prefill worker has, as an Inspection. Its owner alone calls this."""

from __future__ import annotations

from kvplan.runtime.inspection import ClientState, Inspection, SourceState, WriteState
from kvplan.runtime.prefill.clients import DecodeClient
from kvplan.runtime.prefill.inbox import PrefillInbox
from kvplan.runtime.prefill.lease import Leases
from kvplan.runtime.prefill.source import SourceRequest
from kvplan.runtime.prefill.writes import RequestWrite
from kvplan.runtime.staging.buffers import Stage
from kvplan.runtime.transfer.executor import ExecutorContext


def inspected(
    name: str, now: float, context: ExecutorContext, stage: Stage, inbox: PrefillInbox, leases: Leases
) -> Inspection:
    """The prefill worker called `name`."""
    return Inspection(
        name=name,
        now=now,
        transport=context.transport.name,
        peers=frozenset(context.transport.peers),
        met=inbox.clients.met,
        stage=stage.inspected(),
        bytes_in_flight=context.admission.in_flight(),
        slices=context.inspected(),
        checksums=inbox.comparing,
        clients=tuple(map(_client, inbox.clients)),
        holds=leases.holds(),
        sources=tuple(map(_source, inbox.sources.values())),
        unannounced=inbox.unannounced,
        writes=tuple(map(_write, inbox.writes)),
        packs=len(inbox.packs),
        untaken=leases.untaken(),
        untold=leases.untold(),
    )


def _client(client: DecodeClient) -> ClientState:
    claimant = client.claimant
    peer = None if client.push is None else client.push.peer
    claims = tuple(client.claims)
    return ClientState(
        client.key, client.name, claimant.run, claimant.worker, claimant.plan, peer, client.heard, claims
    )


def _source(source: SourceRequest) -> SourceState:
    return SourceState(source.request, source.pin, source.whole, len(source.chunks), source.ready)


def _write(write: RequestWrite) -> WriteState:
    return WriteState(write.request.id, write.client.key, write.phase.name.lower(), write.under_way)
