"""Check shapes: every value of a plan has the type of its field, places are pairs, hops are triples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import cache
from reprlib import repr as shortly
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Plan

# Objects already checked, with their type: equal workers share their reads, and reads their tables.
Seen = set[tuple[int, int]]
Check = Callable[[Any, Seen], None]


def check_shape(plan: Plan) -> None:
    """Raises PlanFormatError if a value has another type or length than its field."""
    _check_of(Plan)(plan, set())


@cache
def _check_of(hint: Any) -> Check:
    """Return the check for values of a type."""
    if is_dataclass(hint):
        return _of_fields(hint)
    if get_origin(hint) in (Union, UnionType):
        (wanted,) = (kind for kind in get_args(hint) if kind is not type(None))
        check = _check_of(wanted)
        return lambda value, seen: None if value is None else check(value, seen)
    return _of_tuple(hint) if get_origin(hint) is tuple else _of_plain(hint)


def _of_plain(hint: Any) -> Check:
    def check(value: Any, seen: Seen) -> None:
        if type(value) is not hint:
            raise PlanFormatError(f"a plan has {shortly(value)} where it needs {hint.__name__}; compile it again")

    return check


def _of_fields(hint: Any) -> Check:
    parts: list[tuple[str, Check]] = []

    def check(value: Any, seen: Seen) -> None:
        if type(value) is not hint:
            raise PlanFormatError(f"a plan has {type(value).__name__} where it needs {hint.__name__}; compile it again")
        if (id(value), id(hint)) in seen:
            return
        seen.add((id(value), id(hint)))
        # Only now, because a class may have fields of its own type.
        if not parts:
            parts.extend(_hints(hint))
        for name, of_part in parts:
            of_part(getattr(value, name), seen)

    return check


def _of_tuple(hint: Any) -> Check:
    kinds = get_args(hint)
    several = kinds[-1] is Ellipsis
    checks = [_check_of(kind) for kind in kinds if kind is not Ellipsis]

    def check(value: Any, seen: Seen) -> None:
        if (id(value), id(hint)) in seen:
            return
        seen.add((id(value), id(hint)))
        if type(value) is not tuple or not (several or len(value) == len(kinds)):
            raise PlanFormatError(f"a plan has {shortly(value)} where it needs {len(kinds)} values; compile it again")
        for of_item, item in zip(checks * len(value) if several else checks, value, strict=True):
            of_item(item, seen)

    return check


def _hints(kind: Any) -> list[tuple[str, Check]]:
    hints = get_type_hints(kind)
    return [(field.name, _check_of(hints[field.name])) for field in fields(kind)]
