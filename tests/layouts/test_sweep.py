"""Every shipped model, on every tensor parallelism from 1 to 16 that its engine can run: proved in full size, and
simulated with fewer layers and shorter vectors."""

from __future__ import annotations

import pytest
from tests.golden.digests import lines, written
from tests.layouts.shrink import shrunk
from tests.layouts.sweep import chain, legal, library, simulated

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import Refused

MODELS = sorted(library().models)
ENGINES = sorted(library().engines)


@pytest.mark.parametrize("model", MODELS)
def test_every_legal_pair_is_proved(model: str) -> None:
    """A plan has a digest only if it was proved; which it is, is written down."""
    found = lines(model)
    assert found, "no tensor parallelism from 1 to 16 runs"
    assert found == written(model), "make goldens, and read the diff"


@pytest.mark.parametrize("model", MODELS)
def test_a_small_one_simulates(model: str) -> None:
    small = shrunk(library(), library().model(model))
    for prefill, decode in chain(legal(model, library().default_engine)):
        _simulated(bind(library(), small, prefill), bind(library(), small, decode))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("model", MODELS)
def test_engines_read_each_other(model: str, engine: str) -> None:
    """A small model from an engine to the default one and back; what cannot be is refused, never wrong."""
    small, mine = shrunk(library(), library().model(model)), legal(model, engine)[:2]
    theirs = legal(model, library().default_engine)[:2]
    pairs = [*zip(mine, theirs, strict=False), *zip(theirs, reversed(mine), strict=False)]
    found = [_outcome(bind(library(), small, prefill), bind(library(), small, decode)) for prefill, decode in pairs]
    # C13x: the two do not store the same, or not as much of it.
    assert [code for code in found if code and not code.startswith("C13")] == []


def _outcome(prefill: BoundSide, decode: BoundSide) -> str:
    """Nothing where all is right, or the code of the refusal."""
    try:
        _simulated(prefill, decode)
    except Refused as error:
        return error.code
    return ""


def _simulated(prefill: BoundSide, decode: BoundSide) -> None:
    report = simulated(compile_bound(prefill, decode), seed=5)
    assert report.right, report.text()
