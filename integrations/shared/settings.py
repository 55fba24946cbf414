"""Settings that must be equal on both engines of a pair, as texts by name: the handshake refuses a difference.

They are taken from the layout and from the checkpoint's own configuration, so that engines of all kinds say the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from kvplan.compiler.bound import BoundCache, BoundSide
from kvplan.integrations.shared.facts import EngineFacts

ROTARY = "rotary embedding"
# How a configuration says how positions are rotated: in keys of its own, in a table, or in a table for each kind of
# layer. Releases of transformers write the same in either way.
KEYS = (
    "rope_theta",
    "rope_local_base_freq",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_dim",
    "max_position_embeddings",
)
TABLES = ("rope_scaling", "rope_parameters")
# The name of a table's kind before it was `rope_type`, and the kind that changes nothing.
OLD_KIND, KIND, PLAIN = "type", "rope_type", "default"
# The longest context counts only if positions are scaled by it.
LIMIT = "max_position_embeddings"
SCALED_BY_LIMIT = ("dynamic", "yarn", "longrope", "su")
TEXT = "text_config"
# Characters of a text that a card takes, and of a value that an error shows as it is.
LONGEST, SHOWN = 256, 32


def settings(side: BoundSide, facts: EngineFacts) -> dict[str, str]:
    """What an engine has that decides which bytes its caches hold: elements by cache, and the rotary embedding."""
    elements = {f"elements of {cache.name}": _elements(cache) for cache in side.caches}
    return {name: _short(text) for name, text in {**elements, ROTARY: rotary(_config(facts))}.items()}


def rotary(config: Mapping[str, Any]) -> str:
    """How a configuration rotates positions, the same text for the same rotation; `none` if it says nothing."""
    found = {name: config[name] for name in KEYS if config.get(name) is not None}
    for name in TABLES:
        found |= _table(_mapping(config.get(name)))
    if found.get(KIND) not in SCALED_BY_LIMIT:
        found.pop(LIMIT, None)
    return " ".join(f"{name}={_value(found[name])}" for name in sorted(found)) or "none"


def _table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The entries of a table, those of inner tables behind their names, without what changes nothing."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        said = f"{prefix}{KIND if name == OLD_KIND else name}"
        if isinstance(value, Mapping):
            found |= _table(value, f"{said}.")
        elif value is not None and not (said.endswith(KIND) and value == PLAIN):
            found[said] = value
    return found


def _elements(cache: BoundCache) -> str:
    return " ".join(f"{tensor.name}={tensor.dtype}" for tensor in cache.tensors)


def _config(facts: EngineFacts) -> Mapping[str, Any]:
    """The text model's configuration as it is served; empty if there is no such file."""
    read: object = None
    with suppress(OSError, ValueError):
        read = json.loads(Path(facts.config).read_text(encoding="utf-8"))
    config = _mapping(read)
    given = (config, config.get(TEXT), facts.overrides, facts.overrides.get(TEXT))
    return {name: value for one in given for name, value in _mapping(one).items()}


def _mapping(value: object) -> Mapping[str, Any]:
    """What a configuration has where a table is meant; an empty one if it has none."""
    return value if isinstance(value, Mapping) else {}


def _value(value: Any) -> str:
    """A number as it is whatever its type, lists by their digest."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    text = json.dumps(value)
    return text if len(text) <= SHOWN else sha256(text.encode()).hexdigest()[:16]


def _short(text: str) -> str:
    """A text that fits a card: of a longer one the beginning, and a digest."""
    return text if len(text) <= LONGEST else f"{text[:200]}… {sha256(text.encode()).hexdigest()[:16]}"
