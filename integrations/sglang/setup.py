"""The runtime's worker for one of SGLang's: its memory registered, its sockets open, its plans ready."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kvplan.integrations.sglang.aux import AuxRows
from kvplan.integrations.sglang.bootstrap import PrefillRecord
from kvplan.integrations.sglang.layout import ServedLayout
from kvplan.integrations.sglang.requests import EngineMeetings, HeldRequests, Receiving
from kvplan.integrations.shared.config import ConnectorConfig, public_key, read_config, worker_address
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.plans import identity, plans, prepare_plans
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.memory.register import views
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import Catalog, Role
from kvplan.runtime.prefill.worker import PrefillWorker
from kvplan.runtime.transport.nixl import Nixl

# The environment variable with the configuration: JSON, or the path of a file with it.
PLACE = "KVPLAN_CONFIG"
# Keys that only other connectors read, and what to do instead.
FLEET = "leave it out: an engine of SGLang does not announce itself, its router names the engines"
UNREAD = {
    "offer": "leave it out: SGLang says when a chunk is computed (--chunked-prefill-size)",
    "hold_s": "give timeout_s, which bounds the whole request: SGLang's router asks prefill and decode at once",
    "bidirectional_kv_xfer": "leave it out: SGLang has no engine that both prefills and decodes",
    **dict.fromkeys(("fleet_url", "fleet_prefix", "fleet_ca", "fleet_cert", "fleet_cert_key"), FLEET),
}
MEETINGS = 8
HELP = "give an object, or the path of a file"


def given_config(environment: Mapping[str, str] = os.environ) -> ConnectorConfig:
    """Read the environment's configuration. Raises ConnectorError (I001, I002)."""
    text = environment.get(PLACE, "") or "{}"
    if not text.lstrip().startswith("{"):
        text = _file_text(text)
    try:
        said = json.loads(text)
    except ValueError as error:
        raise ConnectorError("I002", f"{PLACE} is no JSON: {error}", HELP) from error
    if not isinstance(said, dict):
        raise ConnectorError("I002", f"{PLACE} is no object", 'give keys with values, as {"plans": "plans"}')
    return read_config(said, environment, place=PLACE, unread=UNREAD)


def _file_text(path: str) -> str:
    """Return the text of the file that the variable names. Raises ConnectorError (I002)."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no UTF-8 text"
        what = f"{PLACE} is {path!r}, neither an object nor a file that can be read: {why}"
        raise ConnectorError("I002", what, HELP) from error


def prefill_requests(
    config: ConnectorConfig,
    layout: ServedLayout,
    engine: Identity,
    aux: AuxRows,
    gather: Callable[[PrefillRecord], list[PrefillRecord]],
) -> tuple[HeldRequests, PrefillRecord]:
    """Make a worker that prefills, and the record of its engine. `gather` collects all workers' records, in order.

    Raises ConnectorError (I006), KvplanError.
    """
    catalog, secrets = catalog_for(config, layout, "prefill"), config.secrets()
    worker = PrefillWorker(
        catalog,
        layout.worker,
        views(layout.side, layout.worker, layout.memory),
        Nixl(f"{engine.run}-{layout.worker}", loopback=config.loopback),
        identity=identity(catalog, layout, engine, "prefill"),
        keys=secrets,
        bind=worker_address(config.host, config.port, layout.worker),
        lease=config.lease_s,
        stage_bytes=config.stage_bytes,
    )
    logs.event(logs.INFO, "prefill answers", worker=layout.worker, address=worker.address)
    records = gather(PrefillRecord(worker.address, public_key(secrets)))
    worker.announce([record.address for record in records])
    return HeldRequests(worker, layout.tables, aux), records[0]


def decode_requests(config: ConnectorConfig, layout: ServedLayout, engine: Identity, aux: AuxRows) -> Receiving:
    """Make a worker that decodes. Raises ConnectorError (I006), KvplanError."""
    catalog = catalog_for(config, layout, "decode")
    worker = DecodeWorker(
        catalog,
        layout.worker,
        views(layout.side, layout.worker, layout.memory),
        Nixl(f"{engine.run}-{layout.worker}", loopback=config.loopback),
        identity=identity(catalog, layout, engine, "decode"),
        keys=config.secrets(),
        stage_bytes=config.stage_bytes,
    )
    worker.start()
    threads = ThreadPoolExecutor(MEETINGS, "kvplan-meet")
    return Receiving(worker, EngineMeetings(worker, config, threads), layout.tables, aux, config.timeout_s)


def catalog_for(config: ConnectorConfig, layout: ServedLayout, role: Role) -> Catalog:
    """Return the plans for a role of this side. Raises ConnectorError (I006), KvplanError."""
    catalog = plans(config, layout.cache)
    prepare_plans(catalog, layout, (role,))
    return catalog
