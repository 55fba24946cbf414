"""The scheduler's half of an engine with all its parts: the shared memory, the runtime's workers, the plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from kvplan.integrations.shared.config import ConnectorConfig, public_key, worker_address
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.legs import host_and_port
from kvplan.integrations.shared.plans import identity, plans, prepare_plans
from kvplan.integrations.vllm.encoder.layout import EncoderLayout
from kvplan.integrations.vllm.encoder.pool import RowPool
from kvplan.integrations.vllm.encoder.region import SharedRows
from kvplan.integrations.vllm.encoder.scheduler import EncoderScheduler, PoolOwner
from kvplan.integrations.vllm.encoder.transfers import ItemTransfers
from kvplan.integrations.vllm.setup import load_times
from kvplan.runtime.clock import now
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.memory.register import views
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import Role
from kvplan.runtime.prefill.worker import PrefillWorker
from kvplan.runtime.transport.nixl import Nixl

W = TypeVar("W", PrefillWorker, DecodeWorker)


@dataclass(frozen=True, slots=True)
class EncoderEngine:
    """An engine: its name, this run of it, the revision of its weights, and whether it saves and loads items.

    `memory` is the name of its workers' shared memory, of `pool_bytes` bytes. With port 0 it listens at a free port.
    `number` is its index among the engines of a data-parallel deployment, which listen at consecutive ports.
    """

    name: str
    run: str
    revision: str
    saves: bool
    loads: bool
    memory: str
    workers: int
    pool_bytes: int
    port: int = 0
    number: int = 0

    @property
    def roles(self) -> tuple[Role, ...]:
        """The engine's roles in the runtime's words: an engine that saves prefills, one that loads decodes."""
        played: tuple[tuple[Role, bool], ...] = (("prefill", self.saves), ("decode", self.loads))
        return tuple(role for role, plays in played if plays)


def shared_rows(layout: EncoderLayout, engine: EncoderEngine) -> SharedRows:
    """Make the memory of the engine's pool. Raises ConnectorError (I013)."""
    blocks = engine.pool_bytes // layout.block_bytes
    if blocks < 1:
        help = f'give "ec_buffer_size": {layout.block_bytes} or more, beside "ec_connector"'
        raise ConnectorError("I013", f"a pool of {engine.pool_bytes} bytes has no room for a block of rows", help)
    return SharedRows(engine.memory, blocks, layout.block_bytes, engine.workers)


def connector_scheduler(
    config: ConnectorConfig, layout: EncoderLayout, engine: EncoderEngine, rows: SharedRows, first: int
) -> tuple[EncoderScheduler, ItemTransfers]:
    """Make the scheduler's half, and its transfers. The first `first` workers copy items. Raises KvplanError."""
    catalog, secrets = plans(config, layout.cache), config.secrets()
    prepare_plans(catalog, layout, engine.roles)
    pool = views(layout.side, layout.worker, {layout.plane: rows.rows})

    def made(kind: type[W], role: Role, **more: Any) -> W:
        who = identity(catalog, layout, Identity(engine.name, engine.run, engine.revision), role)
        transport = Nixl(f"{engine.run}-items", loopback=config.loopback)
        return kind(catalog, layout.worker, pool, transport, identity=who, keys=secrets, stage_bytes=0, **more)

    holder = reader = None
    port = engine.port + engine.number if engine.port else 0
    if engine.saves:
        holder = made(PrefillWorker, "prefill", bind=worker_address(config.host, port, 0), lease=config.lease_s)
        holder.announce([holder.address])
        logs.event(logs.INFO, "encode engine answers", address=holder.address)
    if engine.loads:
        reader = DecodeWorker.beside(holder) if holder else made(DecodeWorker, "decode")
        if holder is None:
            reader.start()
    transfers = ItemTransfers(layout.pool, holder, reader, load_times(config), config.mode)
    copying = range(first)
    scheduler = EncoderScheduler(
        _owner(engine, holder, public_key(secrets)),
        RowPool(rows.blocks, layout.pool.block_rows, lambda step: rows.done(step, copying)),
        transfers,
        rows.signed,
        now,
        config.refuses,
        patience=config.timeout_s,
    )
    return scheduler, transfers


def _owner(engine: EncoderEngine, holder: PrefillWorker | None, key: str) -> PoolOwner:
    if holder is None:
        return PoolOwner(engine.name, saves=False, loads=engine.loads)
    host, port = host_and_port(holder.address)
    return PoolOwner(engine.name, host, port, key, engine.saves, engine.loads)
