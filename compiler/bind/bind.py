"""Bind layout files and a side's text into a BoundSide, every number resolved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kvplan.compiler.bind.caches import stored, with_shares
from kvplan.compiler.bind.instead import WHEN, StoredModel, as_stored
from kvplan.compiler.bind.key import is_usual, side_key
from kvplan.compiler.bind.memory import with_memory
from kvplan.compiler.bind.mesh import mesh_sizes, workers
from kvplan.compiler.bind.options import option_values
from kvplan.compiler.bind.require import check_doubted, check_requirements
from kvplan.compiler.bound import BoundSide, BoundWorker
from kvplan.compiler.errors import BadInput, Refused
from kvplan.compiler.paging.overrides import check_idle, layout, once, override_keys
from kvplan.compiler.paging.paging import PagedSide, paged
from kvplan.compiler.paging.rings import check_rings
from kvplan.compiler.side.keys import check_keys, side_keys
from kvplan.compiler.side.options import Env, read_option
from kvplan.compiler.side.text import nearest, parse_side, whole
from kvplan.dsl.files.conditions import meant
from kvplan.dsl.lang.evaluate import filled, is_true
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.model import Model

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


# The store of caches in blocks, and the unit of an option that says how many tokens a block has.
TOKENS = "tokens"
# A side that keys make, still without a name, and why it does not store some of the model's caches.
Paged = tuple[PagedSide, dict[str, str]]
Page = Callable[[Mapping[str, str]], Paged]


def bind(library: Library, model: Model, text: str) -> BoundSide:
    """Bind the side `text` of `model`. Raises BadInput (S…), Refused (C…) or DslError."""
    try:
        return _bound(library, model, text)
    except Refused as error:
        if other := held_as(library, model, text):
            raise Refused(error.code, error.message, f"{error.help}; the side {other} works") from error
        raise


def held_as(library: Library, model: Model, text: str) -> str:
    """Return the side `text` with the keys that the model's file says its engine needs.

    Empty if it has them all, or if that side cannot be bound, either.
    """
    engine = library.engine(parse_side(text).get("engine", library.default_engine))
    given = side_keys(engine, text)
    needed = parse_side(model.sides.get(engine.name, ""))
    if not needed.items() - given.items():
        return ""
    other = ",".join(f"{key}={value}" for key, value in {**given, **needed}.items())
    try:
        _bound(library, model, other)
    except (BadInput, Refused):
        return ""
    return other


def _bound(library: Library, model: Model, text: str) -> BoundSide:
    engine = library.engine(parse_side(text).get("engine", library.default_engine))
    given = side_keys(engine, text)
    given.pop("engine", None)
    kept = as_stored(library, engine, model, given)
    page = once(partial(_paged, library, kept, engine))
    needed = _needed(page, engine, given, option_values(library, engine, kept.model, given))
    found, why = page(needed)
    prefix = () if engine.name == library.default_engine else (f"engine={engine.name}",)
    key = side_key(engine, found.side, found.env, found.overrides.changed, needed, model.drafts)
    notes = (*found.side.notes, *_raised(engine, found.side, needed), *kept.notes(engine, but=why), *noted(why))
    unprobed = tuple(cache.name for cache in found.side.caches if cache.kind not in engine.probed.kinds)
    text = ",".join((*prefix, key))
    missing = tuple(sorted({**kept.dropped, **why}.items()))
    return replace(found.side, key=text, notes=notes, absent=missing, unprobed=unprobed)


def _paged(library: Library, stored_model: StoredModel, engine: Engine, given: Mapping[str, str]) -> Paged:
    """Return the side that these keys make, still without a name, and why it lacks some of the model's caches."""
    model = stored_model.model
    sizes = mesh_sizes(engine, given)
    env = option_values(library, engine, model, given)
    why = absent(stored_model.asked, engine, env, given.get("without"))
    kept = [cache for name, cache in sorted(model.caches.items()) if name not in why]
    check_keys(engine, given, override_keys(engine, [cache.name for cache in kept]))
    plain = tuple(stored(library.kind(cache.kind), cache, engine, env, lambda: library.storages) for cache in kept)
    caches = with_memory(with_shares(plain, given, sizes), engine, env, given)
    check_requirements(engine, model, caches, env)
    check_doubted(library, engine, model, caches)
    side = _side(engine, model, sizes, env, given)
    found = paged(replace(side, caches=caches), engine, env, given)
    check_requirements(engine, model, caches, found.env, found.caches)
    check_idle(engine, found.overrides)
    check_rings("", found.side)
    return found, why


def _needed(page: Page, engine: Engine, given: Mapping[str, str], env: Env) -> Mapping[str, str]:
    """Drop options that repeat their default and change nothing, so that one side has one name.

    Files can ask whether an option is given, so an option with its default value may still make another side.
    """
    usual = [name for name, option in engine.options.items() if name in given and is_usual(option, env)]
    if not usual:
        return given
    lies, least = _layout_of(page, given), _without(given, usual)
    if _layout_of(page, least) == lies:
        return least
    for name in usual:
        less = _without(given, [name])
        given = less if _layout_of(page, less) == lies else given
    return given


def _without(given: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    return {key: value for key, value in given.items() if key not in names}


def _layout_of(page: Page, given: Mapping[str, str]) -> tuple[object, ...] | None:
    """Return where everything lies on the side that these keys make; None if the engine refuses it."""
    try:
        return layout(page(given)[0].side)
    except (BadInput, Refused):
        return None


def _side(engine: Engine, model: Model, sizes: Mapping[str, int], env: Env, given: Mapping[str, str]) -> BoundSide:
    """Return the side with its workers, still without caches."""
    grid: tuple[BoundWorker, ...] = workers(engine, sizes, model, env, given.get("layers"))
    blocks = whole("blocks", given["blocks"], 1) if "blocks" in given else None
    copies, at = filled(engine.copies, env), tuple(sizes.items())
    return BoundSide("", engine.name, model.name, at, copies, (), (), grid, blocks=blocks)


def absent(model: Model, engine: Engine, env: Env, without: str | None) -> dict[str, str]:
    """Return the caches that are not stored, each with its reason. Raises BadInput (S016), DslError."""
    left_out = [] if without is None else without.split("+")
    for name in left_out:
        _check_left_out(model, str(without), name)
    conditions = {name: cache.when for name, cache in model.caches.items() if cache.when}
    unmet = {name: f"{WHEN}{when.text}" for name, when in conditions.items() if not _stores(when, engine, env)}
    return dict(sorted(({name: f"without={name}" for name in left_out} | unmet).items()))


def _raised(engine: Engine, side: BoundSide, given: Mapping[str, str]) -> list[str]:
    """Return a note on each option in tokens that no block has."""
    options = [option for name, option in engine.options.items() if option.unit == TOKENS and name in given]
    blocks = {group.tokens: group.members[0][0] for group in side.groups if group.store == TOKENS}
    has = " and ".join(f"blocks of {cache} have {tokens:,} tokens" for tokens, cache in blocks.items())
    return [
        f"{option.name}={given[option.name]}, {option.doc}: {has}"
        for option in options
        if blocks and read_option(option, given[option.name]) not in blocks
    ]


def noted(why: Mapping[str, str]) -> list[str]:
    """Return a note on each missing cache that the side's text does not name."""
    return [
        f"{name} is stored only {reason}, which is false here"
        for name, reason in why.items()
        if reason.startswith(WHEN)
    ]


def _check_left_out(model: Model, without: str, name: str) -> None:
    if name not in model.caches:
        said = f"without={without}: {model.name} has no cache {name!r}"
        raise BadInput("S016", said, nearest(name, list(model.caches)))
    if not model.caches[name].optional:
        raise BadInput("S016", f"without={without}: {name!r} is not optional", "mark it optional in the model's file")


def _stores(when: Expr, engine: Engine, env: Env) -> bool:
    """Whether a side stores a cache. A condition on an option that the engine lacks is false."""
    return when.names <= set(env) and is_true(meant(when, engine.options), env)
