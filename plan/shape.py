"""Shape: every value of a plan is of the type that its field says, places are pairs, hops are triples."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from reprlib import repr as shortly
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.types import Plan

# Which objects were looked at as what: equal workers share their reads, and reads their tables.
Seen = set[tuple[int, int]]


def check_shape(plan: Plan) -> None:
    """Raises PlanFormatError where a value is of another type or length than its field."""
    _check(plan, Plan, set())


def _check(value: object, hint: Any, seen: Seen) -> None:
    if is_dataclass(hint):
        return _check_fields(value, hint, seen)
    if get_origin(hint) in (Union, UnionType):
        wanted = [kind for kind in get_args(hint) if kind is not type(None)]
        return None if value is None else _check(value, wanted[0], seen)
    if get_origin(hint) is tuple:
        return _check_tuple(value, hint, seen)
    if type(value) is not hint:
        raise PlanFormatError(f"a plan has {shortly(value)} where it needs {hint.__name__}; compile it again")


def _check_fields(value: Any, hint: Any, seen: Seen) -> None:
    if type(value) is not hint:
        raise PlanFormatError(f"a plan has {type(value).__name__} where it needs {hint.__name__}; compile it again")
    if (id(value), id(hint)) in seen:
        return
    seen.add((id(value), id(hint)))
    for name, kind in _hints(hint):  # type: ignore[arg-type]  # a class is hashable, whatever it is of
        _check(getattr(value, name), kind, seen)


def _check_tuple(value: object, hint: Any, seen: Seen) -> None:
    kinds = get_args(hint)
    if (id(value), id(hint)) in seen:
        return
    seen.add((id(value), id(hint)))
    if type(value) is not tuple or (kinds[-1] is not Ellipsis and len(value) != len(kinds)):
        raise PlanFormatError(f"a plan has {shortly(value)} where it needs {len(kinds)} values; compile it again")
    for n, item in enumerate(value):
        _check(item, kinds[0] if kinds[-1] is Ellipsis else kinds[n], seen)


@cache
def _hints(kind: Any) -> tuple[tuple[str, Any], ...]:
    hints = get_type_hints(kind)
    return tuple((field.name, hints[field.name]) for field in fields(kind))
