"""The plans of an engine's side: their source, and the identity with which its workers meet others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Protocol

from kvplan.integrations.shared.cache import LAYOUTS, PLANS
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.plan.types import Side
from kvplan.registry.catalog import RemoteCatalog
from kvplan.registry.signing import TrustedKeys
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.ops import logs
from kvplan.runtime.plans.catalog import Catalog, Role
from kvplan.runtime.plans.jit import Jit, command, shown

JIT_TIMEOUT = 300.0


class ServedSide(Protocol):
    """The side of an engine, the model that it serves, and the number of one worker."""

    @property
    def side(self) -> Side: ...

    @property
    def model(self) -> str: ...

    @property
    def model_digest(self) -> str: ...

    @property
    def worker(self) -> int: ...

    @property
    def settings(self) -> Mapping[str, str]: ...


def plans(config: ConnectorConfig, cache: Path | None) -> Catalog:
    """Return the plans directory, which pulls missing plans if there is a URL, or else the cache, which compiles them.

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


def prepare_plans(catalog: Catalog, layout: ServedSide, wanted: Iterable[Role]) -> None:
    """Check that this side has plans. The first worker begins to compile one. Raises ConnectorError (I006)."""
    check_plans(catalog, layout, wanted)
    if catalog.jit and layout.worker == 0:
        compile_ahead(catalog, layout)


def compile_ahead(catalog: Catalog, layout: ServedSide) -> Thread:
    """Compile the plan for a peer like this engine in the background. Real peers are known only at their meeting."""

    def run() -> None:
        side = layout.side.digest, layout.side.key
        try:
            catalog.find(layout.model, layout.model_digest, side, side)
        except Exception as error:  # The first request reports the error.
            logs.event(logs.WARNING, "plan not compiled", error=error)

    thread = Thread(target=run, name="kvplan-ahead", daemon=True)
    thread.start()
    return thread


def check_plans(catalog: Catalog, layout: ServedSide, wanted: Iterable[Role]) -> None:
    """Raises ConnectorError (I006) if no plan has this side, and none will be compiled."""
    if catalog.jit or any(catalog.models(role, layout.side.digest) for role in wanted):
        return
    key = layout.side.key
    words = command(layout.model, key, key, catalog.options, (), catalog.folder)
    message = f"no plan in {catalog.folder} has {' or '.join(wanted)} side {key} of {layout.model}"
    help = f'{shown(words)}, with the other engine\'s side; or leave "plans" out, and the engine compiles them'
    raise ConnectorError("I006", message, help)


def identity(catalog: Catalog, layout: ServedSide, engine: Identity, role: Role) -> Identity:
    """Return the engine's identity with its model as in plans with this side, or as in the layout without such plans.

    It includes all settings that must be equal on both engines of a pair, of any kinds.
    """
    known = sorted(catalog.models(role, layout.side.digest))
    own = layout.model, layout.model_digest
    alike = not known or any(digest == layout.model_digest for _, digest in known)
    # Plans of an earlier layout, or of another one for this memory: peers with these plans use their name of the model.
    name, digest = own if alike else next((pair for pair in known if pair[0] == layout.model), known[0])
    return replace(engine, model=name, model_digest=digest, settings=layout.settings)
