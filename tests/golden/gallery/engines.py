"""Which storage expression an engine has for a kind: by default, and what options make of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, product

from tests.golden.gallery.formula import closure

from kvplan.compiler.bind.mesh import mesh_sizes
from kvplan.compiler.side.kernels import accepted
from kvplan.compiler.side.options import split_options
from kvplan.dsl.lang.evaluate import filled
from kvplan.dsl.lang.nodes import SizeSet, Storage, Value
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.fields import placeholders
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.names import KERNELS
from kvplan.dsl.text.diagnostics import DslError

# By engine and kind, which are kept beside it: every model asks for all engines.
USES: dict[tuple[int, int], tuple[Engine, Kind, Use]] = {}
NONE = "it has no storage expression for that"
WORDS: Mapping[str, Value | SizeSet] = {"dtype": "bf16", "query_heads": 1, "architecture": "", "model_type": ""}


@dataclass(frozen=True, slots=True)
class Use:
    """How one engine stores a kind: storage expression -> options that choose it, none for its default.

    `free` is an option that takes any name. `refused` is what the engine says where it never stores the kind.
    """

    engine: Engine
    choices: Mapping[str, str]
    free: str = ""
    refused: str = ""


def use(engine: Engine, kind: Kind) -> Use:
    """What an engine does with a kind. Names that the kind has no storage expression for are left out."""
    key = id(engine), id(kind)
    if key not in USES:
        USES[key] = engine, kind, _use(engine, kind)
    return USES[key][2]


def _use(engine: Engine, kind: Kind) -> Use:
    never = [r.say for r in engine.require if kind.name in r.kinds and r.that.text == "false"]
    if never:
        return Use(engine, {}, refused=never[0])
    rule, known = rule_of(engine, kind), storages(engine, kind)
    free = [name for name in placeholders(rule) if not engine.options[name].values]
    found: dict[str, str] = {}
    for given in _settings(engine, rule):
        name = _name(engine, rule, given)
        if name in known:
            found.setdefault(name, ",".join(f"{option}={value}" for option, value in given.items()))
    return Use(engine, found, free[0] if free else "")


def rule_of(engine: Engine, kind: Kind) -> str:
    """The name of a storage expression, in which `{option}` stands for an option's value."""
    store = "tokens" if kind.store == "ring" else kind.store
    return engine.storage.get(kind.name) or engine.storage.get(store) or engine.storage["default"]


def storages(engine: Engine, kind: Kind) -> dict[str, Storage]:
    """The kind's storage expressions and the engine's own."""
    return {**kind.storage, **engine.own.get(kind.name, {})}


def default_env(engine: Engine, given: Mapping[str, str] | None = None) -> dict[str, Value | SizeSet]:
    """Options and mesh sizes of a side that says nothing but `given`."""
    outer = {**WORDS, **mesh_sizes(engine, {})}
    kernels = {KERNELS: accepted(engine, "default", {}, outer)} if engine.kernels else {}
    return split_options(engine.options, given or {}, {**outer, **kernels})


def choosing(kind: Kind, words: list[str], engines: list[Engine]) -> str:
    """The option that some parameters of a kind default to, empty where there is none."""
    outer = closure(kind, words) - {*kind.params}
    return next((option for option in sorted(outer) if any(option in engine.options for engine in engines)), "")


def _settings(engine: Engine, rule: str) -> Iterator[dict[str, str]]:
    """Values of the options that a rule depends on, however far: none given, then one of them, then two …"""
    used = [name for name in engine.options if name in _closure(engine, rule) and engine.options[name].values]
    for many in range(len(used) + 1):
        for chosen in combinations(used, many):
            for values in product(*(engine.options[name].values for name in chosen)):
                yield dict(zip(chosen, values, strict=True))


def _closure(engine: Engine, rule: str) -> set[str]:
    todo, known = list(placeholders(rule)), set[str]()
    while todo:
        name = todo.pop()
        default = engine.options[name].default if name in engine.options else None
        if default and name not in known:
            todo += default.names
        known.add(name)
    return known


def _name(engine: Engine, rule: str, given: Mapping[str, str]) -> str:
    try:
        return filled(rule, default_env(engine, given))
    except DslError:
        return ""
