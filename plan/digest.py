"""Digests of sides and plans: over what they mean, never over how they are written or called."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass, replace
from functools import cache

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Plan, Side

LENGTH = 32


def digest(value: object) -> str:
    """The first 32 hex characters of the SHA-256 of `value` as JSON: keys sorted, no spaces, dataclasses as objects.

    Fields that have their default are left out: one that is added later changes no digest.
    """
    text = json.dumps(value, default=_object, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def side(value: Side) -> str:
    """Digest of where a side keeps things: groups and workers, not the key."""
    return digest({"groups": value.groups, "workers": value.workers})


def plan(value: Plan) -> str:
    """Digest of what a plan does: both sides, model, options, pairs, reads and contract, not titles."""
    # Many decode workers may read alike.
    alike = {reads: digest(reads) for reads in dict.fromkeys(value.reads)}
    return digest(
        {
            "prefill": value.prefill.digest,
            "decode": value.decode.digest,
            "model": value.model_digest,
            "options": value.options,
            "pairs": value.pairs,
            "reads": [alike[reads] for reads in value.reads],
            "notify": value.notify,
            "skipped": value.skipped,
        }
    )


def sealed(value: Plan) -> Plan:
    """`value` with the digests of its sides and its own computed."""
    prefill = replace(value.prefill, digest=side(value.prefill))
    decode = replace(value.decode, digest=side(value.decode))
    whole = replace(value, prefill=prefill, decode=decode)
    return replace(whole, digest=plan(whole))


def check(value: Plan) -> None:
    """Raises PlanFormatError where a digest in the plan is not that of its contents."""
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


def _object(value: object) -> dict[str, object]:
    if not is_dataclass(value) or isinstance(value, type):
        raise TypeError(f"no digest of a {type(value).__name__}")
    return {name: found for name, default in _fields(type(value)) if (found := getattr(value, name)) != default}


@cache
def _fields(cls: type) -> tuple[tuple[str, object], ...]:
    """The fields of a class that count, with their defaults."""
    return tuple((field.name, field.default) for field in fields(cls))
