"""Snapshot: all that a core has, as a value that can be compared and hashed. Equal snapshots go on in the same way."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import msgspec
import numpy as np

from kvplan.runtime.machine import Facts


def snapshot(value: Any) -> Hashable:
    """A core, or any value within one, as a hashable value. Constants, such as a reader, are themselves."""
    if isinstance(value, Facts | Enum | type):
        return value
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((snapshot(key), snapshot(one)) for key, one in value.items())
    if isinstance(value, Set):
        return frozenset(map(snapshot, value))
    if isinstance(value, list | tuple):
        return tuple(map(snapshot, value))
    parts = _parts(value)
    return value if parts is None else (type(value).__name__, *map(snapshot, parts))


def _parts(value: Any) -> list[Any] | None:
    """An object's parts, in order; None if it is a value by itself."""
    if is_dataclass(value):
        return [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, msgspec.Struct):
        return [getattr(value, name) for name in value.__struct_fields__]
    if not hasattr(value, "__dict__"):
        return None
    # The state that all parts of a core share is seen once, with the core.
    return [one for name, one in vars(value).items() if name != "_state" and not callable(one)]
