"""The engine's record in a fleet, kept by its scheduler's process if a configuration names an etcd."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kvplan.fleet.errors import FleetError
from kvplan.fleet.etcd import Certificates, EtcdFleet
from kvplan.fleet.records import EngineRecord, EngineRole
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.vllm.metadata import WorkerFacts
from kvplan.runtime.control.card import PROTOCOL
from kvplan.runtime.ops import logs

# Seconds that an engine waits at its end for an etcd that does not answer.
PATIENCE = 1.0


class FleetAnnouncer:
    """Announces one engine, on threads of its own; nothing waits for etcd, and without one nothing happens."""

    def __init__(self, config: ConnectorConfig) -> None:
        """Raises FleetError if the configuration names no usable etcd, or its client is missing."""
        self._fleet: EtcdFleet | None = None
        self._free: Callable[[], int] | None = None
        if config.fleet_url:
            files = (config.fleet_ca, config.fleet_cert, config.fleet_cert_key)
            certificates = Certificates(*(str(file) if file else None for file in files))
            self._fleet = EtcdFleet(config.fleet_url.split(","), config.fleet_prefix, certificates=certificates)

    def count(self, free: Callable[[], int]) -> None:
        """Use `free` from now on to count free blocks."""
        self._free = free

    def announce(self, name: str, run: str, role: EngineRole, workers: Sequence[WorkerFacts], blocks: int) -> None:
        """Keep the record of the engine with these workers; `blocks` are its free blocks if `count` has no counter."""
        if self._fleet is None:
            return
        try:
            free = blocks if self._free is None else self._free()
            self._fleet.announce(engine_record(name, run, role, workers, free), self._free)
        except FleetError as error:  # No reason to end a working engine.
            logs.event(logs.WARNING, "fleet not told", error=error)

    def close(self) -> None:
        """Remove the record, if etcd answers at once."""
        if self._fleet is not None:
            self._fleet.close(PATIENCE)


def engine_role(prefills: bool, decodes: bool) -> EngineRole:
    if prefills and decodes:
        return EngineRole.BOTH
    return EngineRole.PREFILL if prefills else EngineRole.DECODE


def engine_record(
    name: str, run: str, role: EngineRole, workers: Sequence[WorkerFacts], free_blocks: int
) -> EngineRecord:
    """Return one record for all workers of an engine, with the addresses of those that prefill."""
    ordered = sorted(workers, key=lambda worker: worker.worker)
    first = ordered[0]
    return EngineRecord(
        name=name,
        run=run,
        role=role,
        model=first.model,
        model_digest=first.model_digest,
        side=first.side,
        side_key=first.side_key,
        addresses=tuple(worker.address for worker in ordered if worker.address),
        key=first.key,
        revision=first.revision,
        protocol=PROTOCOL,
        free_blocks=free_blocks,
    )
