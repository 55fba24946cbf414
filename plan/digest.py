"""Digests of sides and plans, over their meaning, never over spelling or names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from typing import Any

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Plan, Side

LENGTH = 32


def digest(value: object) -> str:
    """Return the first 32 hex digits of the SHA-256 of `value` as JSON: keys sorted, no spaces, dataclasses as objects.

    Fields that have their default are left out, so that a field added later changes no digest.
    """
    return hashlib.sha256(_json(value, {}).encode()).hexdigest()[:LENGTH]


def side(value: Side) -> str:
    """Return the digest of a side's memory layout and needs: groups, workers and needs, not the key."""
    needs = {"needs": value.needs} if value.needs else {}
    return digest({"groups": value.groups, "workers": value.workers, **needs})


def plan(value: Plan) -> str:
    """Return the digest of a plan's effect: both sides, model, options, pairs, reads and contract, not titles."""
    # Once per distinct value, because many decode workers may have equal reads.
    alike = {reads: digest(reads) for reads in dict.fromkeys(value.reads)}
    return digest(
        {
            "prefill": value.prefill.digest,
            "decode": value.decode.digest,
            "model": value.model_digest,
            "options": value.options,
            "pairs": value.group_pairs,
            "reads": [alike[reads] for reads in value.reads],
            "notify": value.notify,
            "skipped": value.skipped,
        }
    )


def sealed(value: Plan) -> Plan:
    """Return `value` with its sides' digests and its own digest computed."""
    prefill = replace(value.prefill, digest=side(value.prefill))
    decode = replace(value.decode, digest=side(value.decode))
    whole = replace(value, prefill=prefill, decode=decode)
    return replace(whole, digest=plan(whole))


def check(value: Plan) -> None:
    """Raises PlanFormatError if a digest in the plan differs from its contents."""
    found = {
        "prefill side": (value.prefill.digest, side(value.prefill)),
        "decode side": (value.decode.digest, side(value.decode)),
        "plan": (value.digest, plan(value)),
    }
    for name, (stored, computed) in found.items():
        if stored != computed:
            raise PlanFormatError(
                f"{name} digest is {stored!r}, its contents give {computed!r}: compile the plan again"
            )


def _json(value: Any, known: dict[int, str]) -> str:
    """Return the JSON text of a value. Objects that workers or reads share are written once; `known` is by identity."""
    if type(value) is int:
        return str(value)
    if type(value) is str:
        return _quoted(value)
    if (text := known.get(id(value))) is not None:
        return text
    if value is None or isinstance(value, str | int | float):
        return json.dumps(value)
    text = known[id(value)] = _written(value, known)
    return text


def _written(value: Any, known: dict[int, str]) -> str:
    if isinstance(value, tuple | list):
        if set(map(type, value)) == {int}:
            return f"[{','.join(map(str, value))}]"
        return f"[{','.join([_json(item, known) for item in value])}]"
    if is_dataclass(value) and not isinstance(value, type):
        of_fields = ((key, getattr(value, name), default) for key, name, default in _fields(type(value)))
        items = [key + _json(found, known) for key, found, default in of_fields if found != default]
    elif isinstance(value, Mapping):
        items = [f"{json.dumps(name)}:{_json(value[name], known)}" for name in sorted(value)]
    else:
        raise TypeError(f"no digest of a {type(value).__name__}")
    return f"{{{','.join(items)}}}"


# Cached, because names of axes, tensors and layers repeat.
_quoted = lru_cache(1 << 12)(json.dumps)


@cache
def _fields(cls: type) -> tuple[tuple[str, str, object], ...]:
    """Return the fields of a class that count, as a key of JSON, by name, with their defaults; in the order of JSON."""
    by_name = sorted(fields(cls), key=lambda field: field.name)
    return tuple((f"{json.dumps(field.name)}:", field.name, field.default) for field in by_name)
