"""The runtime's workers of one of the engine's: its memory registered, its sockets open, its plans at hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from kvplan.integrations.vllm.cache import LAYOUTS, PLANS
from kvplan.integrations.vllm.config import ConnectorConfig
from kvplan.integrations.vllm.errors import ConnectorError
from kvplan.integrations.vllm.layout import WorkerLayout
from kvplan.integrations.vllm.metadata import WorkerFacts
from kvplan.integrations.vllm.offers import PromptOffers
from kvplan.integrations.vllm.tables import BlockTables, spans
from kvplan.integrations.vllm.worker import ConnectorWorker, DecodeSide, LoadTimes, PrefillSide, unmarked
from kvplan.registry.catalog import RemoteCatalog
from kvplan.registry.signing import TrustedKeys
from kvplan.runtime.control.identity import Identity, revision_of
from kvplan.runtime.control.keys import Keys
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.memory.register import views
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import Catalog, Role
from kvplan.runtime.plans.jit import Jit, command, shown
from kvplan.runtime.prefill.worker import PrefillWorker
from kvplan.runtime.transport.nixl import Nixl

JIT_TIMEOUT = 300.0
# Where the hub's client keeps what it has downloaded.
SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})$")
W = TypeVar("W", PrefillWorker, DecodeWorker)


@dataclass(frozen=True, slots=True)
class EngineRoles:
    """An engine: its name, this run of it, what it does, the port of its first worker, how early it offers, and the
    revision of its weights. One that `drafts` goes on to write to its caches when a step has told its tokens.

    With port 0 each worker takes a free one, or goes on at the address `before`, which others were told of already.
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


def connector_worker(
    config: ConnectorConfig, layout: WorkerLayout, roles: EngineRoles
) -> tuple[ConnectorWorker, WorkerFacts]:
    """One worker, and what its scheduler has to know of it. Raises ConnectorError (I006), KvplanError."""
    catalog, secrets = plans(config, layout.cache), config.secrets()
    _check_plans(catalog, layout, roles)
    if catalog.jit and layout.worker == 0:
        compile_ahead(catalog, layout)
    pool, tables = views(layout.side, layout.worker, layout.memory), BlockTables(layout.groups, spans(layout.side))
    address = _address(config.host, layout, roles) if roles.prefills else ""

    def made(kind: type[W], role: Role, **more: Any) -> W:
        transport = Nixl(f"{roles.run}-{layout.worker}", loopback=config.loopback)
        identity = _identity(catalog, layout, roles, role)
        more |= {"identity": identity, "keys": secrets, "stage_bytes": config.stage_bytes}
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
        times = LoadTimes(config.timeout_s, min(config.hold_s, config.timeout_s), config.connect)
        if roles.prefills:
            decoder = DecodeWorker.beside(worker, _identity(catalog, layout, roles, "decode"))
        else:
            decoder = made(DecodeWorker, "decode")
            decoder.start()
        decode = DecodeSide(decoder, tables, times, config.mode, layout.clearing, mark)
    key = secrets.public.decode() if isinstance(secrets, Keys) else ""
    known = _identity(catalog, layout, roles, "prefill" if roles.prefills else "decode")
    stored = (known.model, known.model_digest, layout.side.digest, layout.side.key, known.revision)
    return ConnectorWorker(prefill, decode, pool), WorkerFacts(layout.worker, address, layout.groups, key, *stored)


def _address(host: str, layout: WorkerLayout, roles: EngineRoles) -> str:
    """Where a worker listens; `*` is any free port."""
    port = str(roles.port + layout.worker) if roles.port else "*"
    return roles.before or f"tcp://{host}:{port}"


def served_revision(model: Any, config: str) -> str:
    """Which weights an engine serves, by its model configuration and the path of the checkpoint's own `config.json`.

    The commit that was downloaded, else a digest of the checkpoint's files, else of how the weights are named. Raises
    OSError.
    """
    folder = Path(config).parent
    # What is streamed from elsewhere is in no folder of this machine.
    if not model.model_weights and Path(config).is_file():
        commit = SNAPSHOT.search(folder.as_posix())
        found = commit[1] if commit else revision_of(folder)
        if found:
            return found
    name = f"{model.model_weights or model.model} {model.revision or ''}"
    return sha256(name.encode()).hexdigest()


def plans(config: ConnectorConfig, cache: Path | None) -> Catalog:
    """The plans directory, with what is missing pulled if there is a URL; or the cache, where that is compiled.

    Raises KvplanError.
    """
    if cache is not None:
        own = [path for path in (config.layouts, cache / LAYOUTS) if path and path.is_dir()]
        return Catalog(cache / PLANS, Jit(JIT_TIMEOUT, tuple(own)), config.plan_options)
    assert config.plans is not None
    if config.plans_key is not None:
        trusted, signed_for = TrustedKeys.load(config.plans_key), config.plans_signed_for or None
        return RemoteCatalog(config.plans_url, config.plans, trusted, config.plan_options, signed_for=signed_for)
    return Catalog(config.plans, None, config.plan_options)


def compile_ahead(catalog: Catalog, layout: WorkerLayout) -> Thread:
    """Have the plan for a peer like this engine made meanwhile. Which peers it has is known when it meets them."""

    def run() -> None:
        side = layout.side.digest, layout.side.key
        try:
            catalog.find(layout.model, layout.model_digest, side, side)
        except Exception as error:  # The first request is told what is wrong.
            logs.event(logs.WARNING, "plan not compiled", error=error)

    thread = Thread(target=run, name="kvplan-ahead", daemon=True)
    thread.start()
    return thread


def _check_plans(catalog: Catalog, layout: WorkerLayout, roles: EngineRoles) -> None:
    """Raises ConnectorError (I006) where no plan has this side, and none will be made."""
    roles_of: tuple[tuple[Role, bool], ...] = (("prefill", roles.prefills), ("decode", roles.decodes))
    wanted = [role for role, played in roles_of if played]
    if catalog.jit or any(catalog.models(role, layout.side.digest) for role in wanted):
        return
    key = layout.side.key
    words = command(layout.model, key, key, catalog.options, (), catalog.folder)
    message = f"no plan in {catalog.folder} has {' or '.join(wanted)} side {key} of {layout.model}"
    help = f'{shown(words)}, with the other engine\'s side; or leave "plans" out, and the engine compiles them'
    raise ConnectorError("I006", message, help)


def _identity(catalog: Catalog, layout: WorkerLayout, roles: EngineRoles, role: Role) -> Identity:
    """The engine with its model as plans with this side have it, or as the layout has where there are none yet."""
    identity = Identity(roles.name, roles.run, roles.revision)
    known = sorted(catalog.models(role, layout.side.digest))
    own = layout.model, layout.model_digest
    alike = not known or any(digest == layout.model_digest for _, digest in known)
    # Plans of before, or of another layout of this memory: what they call it is what their engines have.
    name, digest = own if alike else next((pair for pair in known if pair[0] == layout.model), known[0])
    return replace(identity, model=name, model_digest=digest)
