"""Whether an engine can run a model, and with which options: none, one or two of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, combinations

from tests.golden.gallery.engines import use

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import CompileError
from kvplan.dsl.lang.dtypes import SIZES
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Param
from kvplan.dsl.schema.model import Model

BLOCK, BLOCKS = "block", (256, 128, 64, 32)
# By library, which is kept beside it, model and text: pages and tests ask for the same sides again and again.
BOUND: dict[tuple[int, str, str], tuple[Library, BoundSide | CompileError]] = {}


def bound(library: Library, model: Model, text: str) -> BoundSide | CompileError:
    """A side of a shipped model, or the error that refuses it."""
    key = id(library), model.name, text
    if key not in BOUND:
        BOUND[key] = library, _bound(library, model, text)
    return BOUND[key][1]


def _bound(library: Library, model: Model, text: str) -> BoundSide | CompileError:
    try:
        return bind(library, model, text)
    except CompileError as error:
        return error


def runnable(library: Library, model: Model, text: str) -> bool:
    """Whether a side of a model is legal."""
    return isinstance(bound(library, model, text), BoundSide)


def settings(library: Library, model: Model, engine: Engine) -> str | None:
    """The fewest options with which an engine can run a model on one worker; None where none were found.

    Two are tried of the default engine only, and nothing of one that never stores such caches.
    """
    uses = [use(engine, library.kind(cache.kind)) for cache in model.caches.values() if cache.when is None]
    if any(found.refused or not found.choices for found in uses):
        return None
    prefix, most = (f"engine={engine.name},", 2 if engine.name == library.default_engine else 1)
    tries = _tries(engine, most)
    return next((text for text in tries if runnable(library, model, f"{prefix}{text}".rstrip(","))), None)


def _tries(engine: Engine, most: int) -> Iterator[str]:
    """No options, then every value of one, then of two."""
    every = [(option.name, value) for option in engine.options.values() for value in _values(option)]
    chosen = chain.from_iterable(combinations(every, many) for many in range(most + 1))
    unlike = (pairs for pairs in chosen if len({name for name, _ in pairs}) == len(pairs))
    return (",".join(f"{name}={value}" for name, value in pairs) for pairs in unlike)


def _values(option: Param) -> tuple[str, ...]:
    """The words that an option may be, and a few sizes of blocks, large ones first."""
    if option.type == "dtype":
        return tuple(SIZES)
    return tuple(map(str, BLOCKS)) if option.name == BLOCK else option.values
