"""What runs: the sides on which every shipped model is compiled, proved and simulated."""

from __future__ import annotations

from functools import cache

from tests.paths import ROOT

from kvplan.compiler.api import Compiled
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.request_fits import check
from kvplan.compiler.check.sample import sample_range, sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import CompileError
from kvplan.dsl.library import Library, load

EXAMPLES = ROOT / "examples/models"
TP = range(1, 17)
# What an engine needs for some models, beside its defaults: layers inside large blocks, or states in groups by page.
OPTIONS = ("", ",order=BLHNC,block=256", ",form=by_page", ",recurrent=bf16")


@cache
def library() -> Library:
    """The shipped layouts, and the example model for kinds that no shipped model has."""
    return load(sorted(EXAMPLES.glob("*.yaml")))


@cache
def legal(model: str, engine: str) -> tuple[str, ...]:
    """The sides tp=1 to tp=16 that an engine can run of a model, with the first options with which it can any."""
    name = "" if engine == library().default_engine else f",engine={engine}"
    sides = ([f"tp={tp}{name}{options}" for tp in TP] for options in OPTIONS)
    return next((found for every in sides if (found := tuple(side for side in every if _runs(model, side)))), ())


def _runs(model: str, side: str) -> bool:
    try:
        bind(library(), library().model(model), side)
    except CompileError:
        return False
    return True


def chain(sides: tuple[str, ...]) -> list[tuple[str, str]]:
    """Pairs in which every side reads once and is read once: each by the next, the last by the first."""
    return list(zip(sides, (*sides[1:], sides[0]), strict=True))


def simulated(made: Compiled, seed: int = 0) -> Verdict:
    """A plan executed for a request made up for its sides, and compared with naive indexing."""
    sides = made.prefill, made.decode
    request = sample_request(*sides, sample_range(*sides), seed)
    check(request, *sides)
    return simulate(made.plan, *sides, copies(made.plan, request), request)
