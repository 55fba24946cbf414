"""Caches of a model that a side does not store: left out by `without`, or under a condition that does not hold."""

from __future__ import annotations

from collections.abc import Mapping

from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.options import Env
from kvplan.compiler.side.text import nearest
from kvplan.dsl.files.conditions import meant
from kvplan.dsl.lang.evaluate import is_true
from kvplan.dsl.lang.expr import names
from kvplan.dsl.lang.nodes import Expr
from kvplan.dsl.model import Engine, Model

WHEN = "when "


def absent(model: Model, engine: Engine, env: Env, without: str | None) -> dict[str, str]:
    """Why each of them is not stored, by name. Raises BadInput (S016), DslError."""
    left_out = [] if without is None else without.split("+")
    for name in left_out:
        _check_left_out(model, str(without), name)
    conditions = {name: cache.when for name, cache in model.caches.items() if cache.when}
    unmet = {name: f"{WHEN}{when.text}" for name, when in conditions.items() if not _stores(when, engine, env)}
    return dict(sorted(({name: f"without={name}" for name in left_out} | unmet).items()))


def noted(why: Mapping[str, str]) -> list[str]:
    """A note on each that the side's text does not name."""
    return [f"{name} is not stored ({reason})" for name, reason in why.items() if reason.startswith(WHEN)]


def _check_left_out(model: Model, without: str, name: str) -> None:
    if name not in model.caches:
        said = f"without={without}: {model.name} has no cache {name!r}"
        raise BadInput("S016", said, nearest(name, list(model.caches)))
    if not model.caches[name].optional:
        raise BadInput("S016", f"without={without}: {name!r} is not optional", "mark it optional in the model's file")


def _stores(when: Expr, engine: Engine, env: Env) -> bool:
    """Whether a side stores a cache; what its engine has no option for, it cannot have asked for."""
    return names(when) <= set(env) and is_true(meant(when, engine.options), env)
