"""Every shipped model, on every tensor parallelism from 1 to 16 that its engine can run: proved in full size, and
simulated with fewer layers and shorter vectors. `make test` proves a turn of pairs of every third model and simulates
pairs of every second one, and of every kind of cache; `make test-all` has all pairs of all models."""

from __future__ import annotations

import pytest
from tests.golden.digests import Pair, computed, running, written
from tests.layouts.sweep import POOLED, chain, legal, library, outcome, small, some, usual
from tests.shares import later, share, with_rest

MODELS = sorted(library().models)
DEFAULT = library().default_engine
# The kernels of RBLN take no latents of a small model: tests/compiler/pair/test_across_engines.py has pairs of its own.
UNSHRUNK = {"rbln"}
# A worker that has all models of an engine simulates what several of them store once.
ENGINES = sorted({*library().engines} - {DEFAULT} - UNSHRUNK)
OTHERS = [pytest.param(engine, marks=pytest.mark.xdist_group(engine)) for engine in ENGINES]


def test_the_default_engine_runs_all_models_but_those_of_a_pool() -> None:
    assert {model for model in MODELS if not legal(model, DEFAULT, 1)} == POOLED


def test_some_models_have_every_kind_of_cache() -> None:
    of_models = {name: {cache.kind for cache in library().model(name).caches.values()} for name in MODELS}
    assert set().union(*(of_models[name] for name in some())) == set().union(*of_models.values())


def turns(model: str) -> list[list[Pair]]:
    """All pairs of a model's sides in turns, in each of which every side reads once and is read once.

    They begin with another turn for the next model, so that all models' first ones have every distance of two sides.
    """
    sides = list(running(model))
    shifts = [(MODELS.index(model) + count) % len(sides) for count in range(len(sides))]
    return [list(zip(sides, (*sides[shift:], *sides[:shift]), strict=True)) for shift in shifts]


@with_rest("one turn")
@pytest.mark.parametrize("model", [*MODELS[::3], *later(m for m in MODELS if m not in MODELS[::3])])
def test_legal_pairs_are_proved(model: str, rest: bool) -> None:
    """A plan has a digest only if it was proved; which it is, is written down."""
    every, known = turns(model), written(model)
    assert every, "no tensor parallelism from 1 to 16 runs"
    assert sorted(pair for turn in every for pair in turn) == sorted(known), "make goldens"
    pairs = [pair for turn in share(every, 0, len(every), rest) for pair in turn]
    assert computed(model, pairs) == {pair: known[pair] for pair in pairs}, "make goldens, and read the diff"


@pytest.mark.xdist_group(DEFAULT)
@with_rest("eighth")
@pytest.mark.parametrize("model", [*sorted(some()), *later(m for m in MODELS if m not in some())])
def test_a_small_one_simulates(model: str, rest: bool) -> None:
    """Every eighth pair of a chain, another one first from model to model; the others in `make test-all`."""
    pairs = share(chain(usual(model)), MODELS.index(model) // 2, 8, rest)
    found = {pair: outcome(*(small(model, side) for side in pair)) for pair in pairs}
    assert {pair: text for pair, text in found.items() if text} == {}


# Pairs (writer, reader) of the first two sides of either engine. Most faults occur from fewer to more workers and
# back; every other model takes the first of these two pairs, the other models the second.
PAIRS = [(("one", 0), ("other", 1)), (("other", 0), ("one", 1))]
MORE = [(("one", 0), ("other", 0)), (("one", 1), ("other", 1)), (("other", 1), ("one", 0))]


@pytest.mark.full
@pytest.mark.parametrize("more", [False, True], ids=["one", "more"])
@pytest.mark.parametrize("engine", OTHERS)
@pytest.mark.parametrize("model", MODELS)
def test_engines_read_each_other(model: str, engine: str, more: bool) -> None:
    """A small model from an engine to the default one, or back; what cannot be is refused, never wrong."""
    sides = {"one": legal(model, engine, 2), "other": usual(model, 2)}
    if not sides["one"]:
        pytest.skip("an engine runs no side of a model")
    first = MODELS.index(model) % len(PAIRS)
    pairs = [*PAIRS[:first], *PAIRS[first + 1 :], *MORE] if more else [PAIRS[first]]
    # An engine that has no mesh has one side.
    named = [tuple(sides[which][min(number, len(sides[which]) - 1)] for which, number in pair) for pair in pairs]
    found = {pair: outcome(*(small(model, side) for side in pair)) for pair in named}
    # C13x: the two do not store the same, or not as much of it.
    assert {pair: text for pair, text in found.items() if text and not text.startswith("C13")} == {}
