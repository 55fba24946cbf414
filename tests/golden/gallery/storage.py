"""A kind's storage expressions with numbers, as pages drawn to scale.

Drawn are two layers with two items on every axis that is shared out, and the smallest block that the expression takes;
all other numbers are those of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tests.golden.gallery.nest import nests

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.drawing.tensors import draw, page_of
from kvplan.compiler.errors import CompileError
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.placement.sides import plan_side
from kvplan.dsl.lang.expr import parse_expr
from kvplan.dsl.lang.nodes import Expr, Name, Number, Storage, Value
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.kind import Kind
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.yaml_reader import YamlScalar
from kvplan.plan.spans import group_named
from kvplan.plan.types import Planes, Side, Worker

LAYERS = 2
BLOCKS = tuple(4 << n for n in range(8))
WORDS: Mapping[str, Value] = {"dtype": "bf16", "query_heads": 2, "architecture": "", "model_type": ""}


@dataclass(frozen=True)
class Stage(Library):
    """A library in which every side runs one engine and every cache is of one kind."""

    actor: Engine
    role: Kind
    usual: str

    def engine(self, name: str) -> Engine:
        return self.actor

    def kind(self, name: str) -> Kind:
        return self.role

    @property
    def default_engine(self) -> str:  # type: ignore[override]
        return self.usual


@dataclass(frozen=True, slots=True)
class Drawn:
    """One storage expression: its nest as text, one string per allocation, and its pages, each under a title."""

    nest: tuple[str, ...]
    pages: tuple[str, ...]
    tokens: int


def drawn(side: BoundSide | None) -> Drawn | None:
    """The pages of the cache that was staged; None where none could be."""
    if side is None:
        return None
    planned = plan_side(placed(side))
    planes = planned.workers[0].planes
    pages = [line for n, each in enumerate(planes) for line in _page(each, planned, n, len(planes) > 1)]
    return Drawn(tuple(nests(side.caches[0])), tuple(pages), side.caches[0].tokens)


def staged(library: Library, kind: Kind, storage: Storage, engines: list[Engine], cache: Cache) -> BoundSide | None:
    """The cache alone in the smallest block that one of the engines can place."""
    own = {kind.name: {storage.name: storage}}
    actors = [
        replace(e, storage={"default": YamlScalar(storage.name)}, own=own, require=(), stride={}) for e in engines
    ]
    stages = [Stage(library.paths, actor, kind, library.default_engine) for actor in actors]
    tries = (_side(stage, cache, tokens) for tokens in BLOCKS for stage in stages)
    return next((side for side in tries if side), None)


def example(kind: Kind, like: Cache | None, chosen: Mapping[str, str]) -> Cache:
    """A cache like that of a model, or with made-up numbers, of two layers and two items on every split axis."""
    given = dict(like.params) if like else {n: parse_expr("64") for n, p in kind.params.items() if p.default is None}
    for spec in kind.tensors.values():
        for axis in spec.split:
            given |= _two(dict(spec.axes)[axis], given)
    given |= {name: parse_expr(f"'{word}'") for name, word in chosen.items()}
    return Cache(name=YamlScalar(kind.name), kind=kind.name, layers=tuple(range(LAYERS)), params=given)


def _two(extent: Expr | None, given: Mapping[str, Expr]) -> dict[str, Expr]:
    """The parameter that is an axis' extent, as two, unless it is one."""
    name = extent.tree.id if extent and isinstance(extent.tree, Name) else ""
    one = name in given and isinstance(given[name].tree, Number) and given[name].text == "1"
    return {name: parse_expr("2")} if name in given and not one else {}


def _side(stage: Stage, cache: Cache, tokens: int) -> BoundSide | None:
    """The cache alone in blocks of so many tokens, None where it cannot be placed."""
    model = Model(name=cache.name, layers=LAYERS, values=WORDS, caches={cache.name: cache})
    try:
        side = bind(stage, model, f"tokens={tokens},kernel_block={tokens}")
        placed(side)
    except (CompileError, DslError):
        return None
    return side


def _page(planes: Planes, side: Side, number: int, several: bool) -> list[str]:
    axes = [axis for axis, _, _ in planes.loops]
    where = f"a plane for each {' of each '.join(reversed(axes))}" if axes else "one plane for all layers"
    name = f"part {planes.part or number}: " if several else ""
    return [
        *([""] if number else []),
        f"{name}{where}",
        *draw(page_of(Worker(()), planes, group_named(side, planes.group))),
    ]
