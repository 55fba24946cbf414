"""The sides on which every shipped model is compiled, proved and simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from itertools import islice

from tests.layouts.shrink import shrunk
from tests.paths import ROOT

from kvplan.compiler.api import Compiled, compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundCache, BoundSide
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.request import check
from kvplan.compiler.check.sample import sample_range, sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import CompileError, Refused
from kvplan.dsl.lang.nodes import Name
from kvplan.dsl.library import Library, load

EXAMPLES = ROOT / "examples/models"
# The engine of models that the default one is not for, and these models: named, since finding them binds all models.
POOL = "encoder-pool"
POOLED = frozenset({"qwen3-vl-2b-encoder", "qwen3-vl-32b-encoder"})
# With every second model they have every kind of cache.
RARE = ("latents", "minimax-text-01", "streams")
TP = range(1, 17)
# Options that an engine needs for some models: layers inside large blocks, or states in groups by page.
OPTIONS = ("", ",order=BLHNC,block=256", ",form=by_page", ",recurrent=bf16")


@cache
def library() -> Library:
    """The shipped layouts, and the example model for kinds that no shipped model has."""
    return load(sorted(EXAMPLES.glob("*.yaml")))


@cache
def some() -> frozenset[str]:
    """The models whose pairs `make test` simulates: every second one, and one more for each kind that these lack."""
    return frozenset({*sorted(library().models)[1::2], *RARE})


def legal(model: str, engine: str, most: int = len(TP)) -> tuple[str, ...]:
    """The first `most` sides of tp=1 to tp=16 that an engine can run of a model, with the first options with which it
    can any."""
    name = "" if engine == library().default_engine else f",engine={engine}"
    sides = ([f"tp={tp}{name}{options}" for tp in TP] for options in OPTIONS)
    return next((found for every in sides if (found := tuple(islice(_running(model, every), most)))), ())


def usual(model: str, most: int = len(TP)) -> tuple[str, ...]:
    """The first sides of the default engine, or of the pool beside it for caches that are never in its own pages."""
    return legal(model, library().default_engine, most) or legal(model, POOL, most)


def _running(model: str, sides: list[str]) -> Iterator[str]:
    for side in sides:
        try:
            bind(library(), library().model(model), side)
        except CompileError:
            continue
        yield side


def chain(sides: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs in which every side reads once and is read once: each by the next, the last by the first."""
    return list(zip(sides, (*sides[1:], sides[0]), strict=True))


@cache
def small(model: str, side: str) -> BoundSide:
    """A side of a model made small, bound."""
    return bind(library(), shrunk(library(), library().model(model)), side)


def outcome(prefill: BoundSide, decode: BoundSide) -> str:
    """Empty if a plan for the pair is right, the code if it is refused, or the fault.

    Pairs that store the same in the same way are simulated once, whatever their models and engines are called.
    """
    key = content(prefill), content(decode)
    if key not in OUTCOMES:
        OUTCOMES[key] = _outcome(prefill, decode)
    return OUTCOMES[key]


OUTCOMES: dict[tuple[str, str], str] = {}


def content(side: BoundSide) -> str:
    """A bound side's caches and their places, without names, notes and values that no storage uses."""
    return repr(replace(side, key="", engine="", model="", notes=(), caches=tuple(map(_stored, side.caches))))


def _stored(stored: BoundCache) -> BoundCache:
    asked = set(_names(stored.storage))
    return replace(stored, env={name: value for name, value in stored.env.items() if name in asked})


def _names(node: object) -> Iterator[str]:
    """Every name in a syntax tree."""
    if isinstance(node, Name):
        yield node.id
    parts = [getattr(node, f.name) for f in fields(node)] if is_dataclass(node) else node
    for part in parts if isinstance(parts, list | tuple) else ():
        yield from _names(part)


def _outcome(prefill: BoundSide, decode: BoundSide) -> str:
    try:
        report = simulated(compile_bound(prefill, decode), seed=5)
    except Refused as error:
        return error.code
    return "" if report.right else report.text()


def simulated(made: Compiled, seed: int = 0) -> Verdict:
    """A plan executed for a request made up for its sides, and compared with naive indexing."""
    sides = made.prefill, made.decode
    request = sample_request(*sides, sample_range(*sides), seed)
    check(request, *sides)
    return simulate(made.plan, *sides, copies(made.plan, request), request)
