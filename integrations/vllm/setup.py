"""The runtime's workers for one of the engine's: its memory registered, its sockets open, its plans ready."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from kvplan.integrations.shared.config import ConnectorConfig, public_key, worker_address
from kvplan.integrations.shared.plans import identity, plans, prepare_plans
from kvplan.integrations.shared.served import served_revision
from kvplan.integrations.vllm.holds import PrefillSide, unmarked
from kvplan.integrations.vllm.layout import WorkerLayout
from kvplan.integrations.vllm.loads import DecodeSide, LoadTimes
from kvplan.integrations.vllm.metadata import WorkerFacts
from kvplan.integrations.vllm.offers import PromptOffers
from kvplan.integrations.vllm.tables import BlockTables, spans
from kvplan.integrations.vllm.worker import ConnectorWorker
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.memory.register import views
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import Role
from kvplan.runtime.prefill.worker import PrefillWorker
from kvplan.runtime.transport.nixl import Nixl

W = TypeVar("W", PrefillWorker, DecodeWorker)


@dataclass(frozen=True, slots=True)
class EngineRoles:
    """An engine: its name, this run of it, its roles, the port of its first worker, how early it offers, and the
    revision of its weights. One that `drafts` still writes to its caches after a step has returned its tokens.

    With port 0 each worker takes a free one, or keeps the address `before`, which peers already know.
    """

    name: str
    run: str
    prefills: bool
    decodes: bool
    port: int
    offer: str = "layers"
    revision: str = ""
    drafts: bool = False
    before: str = ""

    @property
    def played(self) -> tuple[Role, ...]:
        """The roles that the engine plays."""
        roles: tuple[tuple[Role, bool], ...] = (("prefill", self.prefills), ("decode", self.decodes))
        return tuple(role for role, played in roles if played)

    @property
    def identity(self) -> Identity:
        """The engine without its model's name."""
        return Identity(self.name, self.run, self.revision)


def connector_worker(
    config: ConnectorConfig, layout: WorkerLayout, roles: EngineRoles
) -> tuple[ConnectorWorker, WorkerFacts]:
    """Make one worker and its facts for the scheduler. Raises ConnectorError (I006), KvplanError."""
    catalog, secrets = plans(config, layout.cache), config.secrets()
    prepare_plans(catalog, layout, roles.played)
    pool, tables = views(layout.side, layout.worker, layout.memory), BlockTables(layout.groups, spans(layout.side))
    address = _address(config.host, layout, roles) if roles.prefills else ""

    def made(kind: type[W], role: Role, **more: Any) -> W:
        transport = Nixl(f"{roles.run}-{layout.worker}", loopback=config.loopback)
        more |= {
            "identity": identity(catalog, layout, roles.identity, role),
            "keys": secrets,
            "stage_bytes": config.stage_bytes,
        }
        return kind(catalog, layout.worker, pool, transport, **more)

    prefill = decode = None
    mark = layout.mark if roles.drafts else unmarked
    if roles.prefills:
        worker = made(PrefillWorker, "prefill", bind=address, lease=config.lease_s)
        address = worker.address if address.endswith("*") else address
        logs.event(logs.INFO, "prefill answers", worker=layout.worker, address=address)
        batches = layout.batches if roles.offer == "layers" else None
        prefill = PrefillSide(worker, tables, PromptOffers(worker, tables, batches, layout.mark), mark)
    if roles.decodes:
        if roles.prefills:
            decoder = DecodeWorker.beside(worker, identity(catalog, layout, roles.identity, "decode"))
        else:
            decoder = made(DecodeWorker, "decode")
            decoder.start()
        decode = DecodeSide(decoder, tables, load_times(config), config.mode, layout.clearing, mark)
    known = identity(catalog, layout, roles.identity, roles.played[0])
    stored = (known.model, known.model_digest, layout.side.digest, layout.side.key, known.revision)
    facts = WorkerFacts(layout.worker, address, layout.groups, public_key(secrets), *stored)
    return ConnectorWorker(prefill, decode, pool), facts


def load_times(config: ConnectorConfig) -> LoadTimes:
    """Return the time limits of loads: none waits for a hold longer than it may take in all."""
    return LoadTimes(config.timeout_s, min(config.hold_s, config.timeout_s), config.connect)


def _address(host: str, layout: WorkerLayout, roles: EngineRoles) -> str:
    """Return a worker's address: the one that peers already know, if there is one."""
    return roles.before or worker_address(host, roles.port, layout.worker)


def checkpoint_revision(model: Any, config: str) -> str:
    """Return the revision of an engine's weights, by its model configuration and `config.json`. Raises OSError."""
    streamed = model.model_weights
    return served_revision(config, f"{streamed or model.model} {model.revision or ''}", streamed=bool(streamed))
