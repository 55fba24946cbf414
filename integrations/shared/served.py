"""The model that an engine serves: its layout file, the engine's layout file, and the revision of its weights."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path

from kvplan.compiler.side.engine_file import engine_for
from kvplan.dsl.configs.new_model import NewModel, described, read_config
from kvplan.dsl.library import Library, load
from kvplan.dsl.named import is_path, library
from kvplan.dsl.schema.engine import Engine
from kvplan.integrations.shared.cache import LAYOUTS, cache_folder
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.facts import EngineFacts
from kvplan.runtime.control.identity import revision_of
from kvplan.runtime.ops import logs

DTYPES = ("dtype", "torch_dtype")
# kvplan's own words for the element types of recurrent states and convolution states.
STATES, CONVOLUTIONS = "state_dtype", "conv_state_dtype"
# The most differences that an error lists.
SHOWN = 5
GIVE_OPTIONS = 'give "options" that say what the engine does, or another "layout" or "engine"'
# The download folder of the hub's client.
SNAPSHOT = re.compile(r"/snapshots/([0-9a-f]{40})$")


def engine_layout(layouts: Library, name: str, facts: EngineFacts) -> Engine:
    """Return the engine of that name, or the one whose file is for this package, platform and release."""
    return layouts.engine(name) if name else engine_for(layouts, facts.name, facts.version, facts.platform)


def side_options(config: ConnectorConfig, facts: EngineFacts, engine: Engine) -> dict[str, str]:
    """Return a side's options: the engine's own that its layout file knows, overridden by the user's."""
    known = {*engine.options, *engine.derive}
    return {word: value for word, value in facts.options.items() if word in known} | dict(config.options)


def another_layout(what: str, differences: Sequence[str], help: str = GIVE_OPTIONS) -> ConnectorError:
    """Return the error (I005) for memory that differs from a layout: `what` it is about, and the first differences."""
    more = [f"and {len(differences) - SHOWN} more"] if len(differences) > SHOWN else []
    return ConnectorError("I005", f"{what}: {'; '.join([*differences[:SHOWN], *more])}", help)


def model_layout(config: ConnectorConfig, facts: EngineFacts) -> tuple[Library, str, Path | None]:
    """Return the layout files, the name of the served model's, and the cache folder for plans if there is no directory.

    The model's file is the given one, or one that stores the same. If there is none, and plans are compiled
    here, it is made from the checkpoint's configuration.
    """
    own = (config.layouts,) if config.layouts else ()
    if config.layout:
        path = Path(config.layout)
        texts = {path.name: path.read_text(encoding="utf-8")} if is_path(config.layout) and path.is_file() else {}
        return *library(config.layout, own), _cache(config, texts)
    layouts = load((), own)
    config_json, place = read_config(Path(facts.config))
    new = described(layouts, config_json, place)
    if new.same:
        return layouts, new.same[0], _cache(config, {})
    if config.plans is not None:
        raise _unknown(new, facts, config.layouts)
    new = described(layouts, served(config_json, facts), place)
    cache = cache_folder(config.layouts, {f"{new.name}.yaml": new.text})
    unsure = ", ".join(new.notes) or "nothing"
    logs.event(logs.WARNING, "layout made", file=cache / LAYOUTS / f"{new.name}.yaml", unsure=unsure)
    return load((), (*own, cache / LAYOUTS)), new.name, cache


def _cache(config: ConnectorConfig, texts: Mapping[str, str]) -> Path | None:
    return cache_folder(config.layouts, texts) if config.plans is None else None


def served(config: Mapping[str, object], facts: EngineFacts) -> Mapping[str, object]:
    """Return a checkpoint's configuration as served: engines may keep a model and its states in other element types."""
    kept = {STATES: facts.state_dtype, CONVOLUTIONS: facts.conv_dtype}
    return {**_elements(config, facts.dtype), **{word: dtype for word, dtype in kept.items() if dtype}}


def _elements(config: Mapping[str, object], dtype: str) -> Mapping[str, object]:
    """Return a configuration, with inner ones, with this element type in place of any that it has."""
    inner = {key: _elements(value, dtype) for key, value in config.items() if isinstance(value, Mapping)}
    return {**config, **inner, **{key: dtype for key in DTYPES if key in config}}


def _unknown(new: NewModel, facts: EngineFacts, layouts: Path | None) -> ConnectorError:
    """Return the error for a served model without a file, shipped or in `layouts`, and what to do."""
    file = f"{new.name}.yaml"
    doubts = f"; look at what is not sure in it ({', '.join(new.notes)})" if new.notes else ""
    help = f'{new.command(facts.config, layouts)}{doubts}; then give "layout": "{file}"'
    return ConnectorError("I004", f"no layout file is known that stores what {facts.config} does", help)


def served_revision(config: str, weights: str, *, streamed: bool = False) -> str:
    """Return the revision of the weights that an engine serves, by the path of the checkpoint's own `config.json`.

    It is the downloaded commit, else a digest of the checkpoint's files, else a digest of the name `weights`.
    Weights that are `streamed` are in no folder of this machine. Raises OSError.
    """
    folder = Path(config).parent
    if not streamed and Path(config).is_file():
        commit = SNAPSHOT.search(folder.as_posix())
        found = commit[1] if commit else revision_of(folder)
        if found:
            return found
    return sha256(weights.encode()).hexdigest()
