"""The plans of an engine's side: where they come from, and as whom its workers meet others."""

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


def prepare_plans(catalog: Catalog, layout: ServedSide, wanted: Iterable[Role]) -> None:
    """Check that this side has plans. The first worker begins to compile one. Raises ConnectorError (I006)."""
    check_plans(catalog, layout, wanted)
    if catalog.jit and layout.worker == 0:
        compile_ahead(catalog, layout)


def compile_ahead(catalog: Catalog, layout: ServedSide) -> Thread:
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


def check_plans(catalog: Catalog, layout: ServedSide, wanted: Iterable[Role]) -> None:
    """Raises ConnectorError (I006) where no plan has this side, and none will be made."""
    if catalog.jit or any(catalog.models(role, layout.side.digest) for role in wanted):
        return
    key = layout.side.key
    words = command(layout.model, key, key, catalog.options, (), catalog.folder)
    message = f"no plan in {catalog.folder} has {' or '.join(wanted)} side {key} of {layout.model}"
    help = f'{shown(words)}, with the other engine\'s side; or leave "plans" out, and the engine compiles them'
    raise ConnectorError("I006", message, help)


def identity(catalog: Catalog, layout: ServedSide, engine: Identity, role: Role) -> Identity:
    """The engine with its model as plans with this side have it, or as the layout has where there are none yet.

    With it goes everything that must be equal on both engines of a pair, whatever their kinds.
    """
    known = sorted(catalog.models(role, layout.side.digest))
    own = layout.model, layout.model_digest
    alike = not known or any(digest == layout.model_digest for _, digest in known)
    # Plans of before, or of another layout of this memory: what they call it is what their engines have.
    name, digest = own if alike else next((pair for pair in known if pair[0] == layout.model), known[0])
    return replace(engine, model=name, model_digest=digest, settings=layout.settings)
