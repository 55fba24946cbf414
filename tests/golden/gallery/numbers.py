"""The numbers of a model's caches: what its parameters are worth, bytes of a token or a state, what is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from kvplan.compiler.bind.options import option_values
from kvplan.compiler.side.options import settle
from kvplan.dsl.lang.dtypes import size
from kvplan.dsl.lang.evaluate import evaluate
from kvplan.dsl.lang.nodes import Expr, SizeSet, Value
from kvplan.dsl.library import Library
from kvplan.dsl.schema.kind import Kind, TensorSpec
from kvplan.dsl.schema.model import Cache, Model
from kvplan.plan.types import Needs

TOKENS = 1024
Env = Mapping[str, Value | SizeSet]


@dataclass(frozen=True, slots=True)
class Numbers:
    """One cache: `row` bytes of a token, or a state, of one layer; `moved` is what a reader takes of all layers.

    `needs` are the limits that are more than 0. `stored` says whether a side that asks for nothing stores it.
    """

    cache: Cache
    kind: Kind
    env: Env
    row: Fraction
    moved: int
    needs: Mapping[str, int]
    stored: bool


def numbers(library: Library, model: Model) -> list[Numbers]:
    """Every cache of a model with the numbers that it has on the default engine."""
    engine = library.engine(library.default_engine)
    outer = option_values(library, engine, model, {})
    return [_numbers(library.kind(cache.kind), cache, outer) for cache in model.caches.values()]


def totals(found: list[Numbers]) -> tuple[int, int]:
    """(bytes read for 1,024 tokens, bytes of all states) of the caches that are stored by default."""
    states = [each.moved for each in found if each.stored and each.kind.store == "state"]
    return sum(each.moved for each in found if each.stored) - sum(states), sum(states)


def tensors(found: Numbers) -> list[tuple[TensorSpec, int, int]]:
    """The tensors that exist, with the bytes of a row and the tokens in it; a state is one row."""
    return _rows(found.kind, found.env)


def unconfirmed(model: Model) -> bool:
    """Whether a note of a model's file says that a number is not confirmed."""
    return any("unconfirmed" in note for _, note in model.notes)


def _numbers(kind: Kind, cache: Cache, outer: Env) -> Numbers:
    given = {name: evaluate(expr, outer) for name, expr in cache.params.items()}
    defaults = {n: p.default for n, p in kind.params.items() if n not in given and p.default is not None}
    env = settle(defaults, {**{n: v for n, v in outer.items() if n not in kind.params}, **given})
    limits, rows = _limits(kind, cache, env), _rows(kind, env)
    stored = cache.when is None or bool(evaluate(cache.when, outer))
    moved = len(cache.layers) * sum(held * _count(kind, limits, tokens) for _, held, tokens in rows)
    return Numbers(
        cache, kind, env, sum((Fraction(held, tokens) for _, held, tokens in rows), Fraction()), moved, limits, stored
    )


def _rows(kind: Kind, env: Env) -> list[tuple[TensorSpec, int, int]]:
    there = [spec for spec in kind.stored_as(env).tensors.values() if spec.when is None or evaluate(spec.when, env)]
    return [(spec, _bytes(spec, env), _whole(spec.tokens_per_row, env) if spec.tokens_per_row else 1) for spec in there]


def _bytes(spec: TensorSpec, env: Env) -> int:
    return prod(_whole(expr, env) for _, expr in spec.axes if expr) * size(str(evaluate(spec.dtype, env)))


def _whole(expr: Expr, env: Env) -> int:
    return int(str(evaluate(expr, env)))


def _limits(kind: Kind, cache: Cache, env: Env) -> dict[str, int]:
    needs = cache.needs or kind.needs
    found = {name: _whole(expr, env) for name, expr in (needs.limits if needs else ())}
    reach = found.get("window") or found.get("chunk") or found.get("whole")
    return {name: value for name, value in found.items() if value} if reach else {}


def _count(kind: Kind, limits: Mapping[str, int], rows: int) -> int:
    """How many rows, each of `rows` tokens, a reader of the tokens [0, 1,024) needs; a state is one."""
    if kind.store == "state":
        return 1
    window, chunk = limits.get("window", 0), limits.get("chunk", 0)
    keep = window - 1 + limits.get("retain", 0) if window else None
    needs = Needs(keep, chunk or None, limits.get("sink", 0), limits.get("whole", 1))
    return sum((end - first) // rows for first, end in needs.ranges(0, TOKENS, rows))
