"""Settings that must be equal on both engines of a pair, as texts by name: the handshake refuses a difference.

They come from the layout and from the checkpoint's own configuration, so that engines of all kinds give the same ones.
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
# A configuration describes the rotation of positions in keys of its own, in a table, or in a table for each kind
# of layer. Releases of transformers write the same rotation in any of these ways.
KEYS = (
    "rope_theta",
    "rope_local_base_freq",
    "partial_rotary_factor",
    "rotary_pct",
    "rotary_dim",
    "max_position_embeddings",
)
TABLES = ("rope_scaling", "rope_parameters")
# The name of a table's kind before it was `rope_type`, and the kind without effect.
OLD_KIND, KIND, PLAIN = "type", "rope_type", "default"
# The longest context counts only if it scales positions.
LIMIT = "max_position_embeddings"
SCALED_BY_LIMIT = ("dynamic", "yarn", "longrope", "su")
TEXT = "text_config"
# The most characters of a setting, which must fit a card, and of a value that an error shows as it is.
LONGEST, SHOWN = 256, 32


def settings(side: BoundSide, facts: EngineFacts) -> dict[str, str]:
    """Return the settings that determine an engine's cache bytes: elements by cache, and the rotary embedding."""
    elements = {f"elements of {cache.name}": _elements(cache) for cache in side.caches}
    return {name: _short(text) for name, text in {**elements, ROTARY: rotary(_config(facts))}.items()}


def rotary(config: Mapping[str, Any]) -> str:
    """Describe how a configuration rotates positions, with one text per rotation; `none` if it says nothing."""
    found = {name: config[name] for name in KEYS if config.get(name) is not None}
    for name in TABLES:
        found |= _table(_mapping(config.get(name)))
    if found.get(KIND) not in SCALED_BY_LIMIT:
        found.pop(LIMIT, None)
    return " ".join(f"{name}={_value(found[name])}" for name in sorted(found)) or "none"


def _table(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the effective entries of a table; inner tables' entries have their table's name in front."""
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
    """Return the text model's configuration as served; empty if there is no such file."""
    read: object = None
    with suppress(OSError, ValueError):
        read = json.loads(Path(facts.config).read_text(encoding="utf-8"))
    config = _mapping(read)
    given = (config, config.get(TEXT), facts.overrides, facts.overrides.get(TEXT))
    return {name: value for one in given for name, value in _mapping(one).items()}


def _mapping(value: object) -> Mapping[str, Any]:
    """Return a configuration's table; an empty one if the value is no table."""
    return value if isinstance(value, Mapping) else {}


def _value(value: Any) -> str:
    """Return a text that is equal for equal numbers of any type; long values become a digest."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:g}" if float(f"{value:g}") == value else repr(value)
    text = json.dumps(value)
    return text if len(text) <= SHOWN else sha256(text.encode()).hexdigest()[:16]


def _short(text: str) -> str:
    """Return a text that fits a card: a longer one becomes its beginning and a digest."""
    return text if len(text) <= LONGEST else f"{text[:200]}… {sha256(text.encode()).hexdigest()[:16]}"
