"""What sides make of a model: the blocks and pages of its groups, or the sentence that refuses it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.golden.gallery.engines import use
from tests.golden.gallery.search import bound, runnable, settings
from tests.golden.gallery.text import code, count, default_first, table

from kvplan.compiler.errors import CompileError
from kvplan.compiler.explain.describe import describe_side
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.placement.sides import plan_side
from kvplan.dsl.library import Library
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.schema.model import Model
from kvplan.plan.types import CONTEXT, Group, Planes, Side

SIZES, MOST = (1, 2, 4, 8), 16
SIZES, MOST = (1, 2, 4, 8), 16
HEAD = ("side", "groups", "layers in each", "block", "kernel blocks", "page, bytes", "blocks apart, bytes")


@dataclass(frozen=True, slots=True)
class Run:
    """A side of a model, or the code and the sentence with which it is refused. `own`: of the default engine, plain."""

    text: str
    side: Side | None
    refused: str = ""
    own: bool = False


def runs(library: Library, model: Model) -> list[Run]:
    """The default engine with 1, 2, 4 and 8 workers and with one draft, then all others with one worker.

    Where options are needed, the side that lacks them comes first, with the reason.
    """
    first, *others = _concerned(library, model)
    if first.name != library.default_engine:
        return [replace(run(library, model, f"engine={first.name},tp={size}"), own=True) for size in SIZES]
    (given,) = _given(library, model, first)
    bare = [run(library, model, "tp=1")] if given else []
    own = [replace(run(library, model, f"tp={size}{given}"), own=True) for size in SIZES]
    drafts = [f"tp=1{given},{option}=1" for option in _drafting(first, model)]
    more = [f"engine={each.name},tp=1{given}" for each in others for given in _given(library, model, each)]
    return [*bare, *own, *(run(library, model, text) for text in (*drafts, *more))]


def _concerned(library: Library, model: Model) -> list[Engine]:
    """The engines that are for such models: those that store what the default engine does, or what this model has."""
    first, *others = default_first(library)
    wanted = [cache.kind for cache in model.caches.values()]
    if not _stores(library, first, wanted):
        return [engine for engine in others if _stores(library, engine, wanted)]
    stored = [kind for kind in library.kinds if _stores(library, first, [kind])]
    return [first, *(engine for engine in others if _stores(library, engine, stored))]


def _stores(library: Library, engine: Engine, kinds: list[str]) -> bool:
    """Whether an engine has a form for one of these kinds."""
    return any(use(engine, library.kind(kind)).choices for kind in kinds)


def _drafting(engine: Engine, model: Model) -> list[str]:
    """The numbers that say whether a side stores some caches."""
    used = {name for cache in model.caches.values() if cache.when for name in cache.when.names}
    return sorted(name for name in used if name in engine.options and engine.options[name].type == "int")


def _given(library: Library, model: Model, engine: Engine) -> list[str]:
    """What follows `tp=1` in the sides of an engine that are shown."""
    options = settings(library, model, engine)
    others = [""] if engine.name != library.default_engine or not options else []
    return [*others, f",{options}"] if options else [""]


def run(library: Library, model: Model, text: str) -> Run:
    side = bound(library, model, text)
    try:
        if isinstance(side, CompileError):
            raise side
        return Run(text, plan_side(placed(side)))
    except CompileError as error:
        _, _, sentence = error.message.partition(f"{model.name} on ")
        return Run(text, None, f"{error.code}: {sentence.partition(': ')[2] or error.message}")


def legal(found: list[Run]) -> list[str]:
    """The sides that can be run, of the default engine if the model is for that."""
    return [each.text for each in found if each.side and each.own]


def blocks(found: list[Run]) -> list[str]:
    """A table of all sides and their groups; groups that are paged alike are one row."""
    return table(HEAD, [row for each in found for row in _rows(each)])


def pages(side: Side) -> Iterator[tuple[str, list[str]]]:
    """(title, drawing) of every unlike page of a side."""
    for page in describe_side(side)["pages"]:
        part = f".{page['part']}" if page["part"] else ""
        gap = f", blocks {page['stride']:,} B apart" if page["stride"] != page["bytes"] else ""
        yield f"{page['cache']}{part}{gap}", page["drawing"]


def _rows(found: Run) -> list[tuple[object, ...]]:
    if found.side is None:
        return [(code(found.text), f"refused, {found.refused}", "", "", "", "", "")]
    alike: dict[tuple[object, ...], list[Group]] = {}
    for group in found.side.groups:
        alike.setdefault(_looks(found.side, group), []).append(group)
    rows = [(_names(groups), *_cells(found.side, groups)) for groups in alike.values()]
    return [(code(found.text) if not number else "″", *row) for number, row in enumerate(rows)]


def _looks(side: Side, group: Group) -> tuple[object, ...]:
    planes = [plane for worker in side.workers for plane in worker.planes if plane.group == group.name]
    unlike = {(plane.cache, plane.part or "", plane.page_bytes, plane.stride) for plane in planes}
    base = group.name.rpartition(".")[0] or group.name
    return base, group.store, group.tokens, group.kernel, *sorted(unlike)


def _names(groups: list[Group]) -> str:
    """`full`, or `sliding.0–5`."""
    base, _, first = groups[0].name.rpartition(".")
    numbered = len(groups) > 1 and base and first.isdecimal()
    return f"{base}.{first}–{groups[-1].name.rpartition('.')[2]}" if numbered else ", ".join(g.name for g in groups)


def _cells(side: Side, groups: list[Group]) -> tuple[object, ...]:
    group, sizes = groups[0], sorted({len(_layers(side, each)) for each in groups})
    planes = [plane for plane in side.workers[0].planes if plane.group == group.name]
    named = len({(plane.cache, plane.part) for plane in planes}) > 1
    pages = dict.fromkeys(f"{_part(plane) if named else ''}{plane.page_bytes:,}" for plane in planes)
    gaps = dict.fromkeys(f"{plane.stride:,}" for plane in planes if plane.stride != plane.page_bytes)
    split = "" if group.ratio == 1 else f"{group.ratio} × {group.kernel:,} tokens"
    layers = "–".join(str(n) for n in dict.fromkeys((sizes[0], sizes[-1])))
    return layers, _held(group), split, "; ".join(pages), ", ".join(gaps)


def _part(plane: Planes) -> str:
    return f"{plane.cache}.{plane.part} " if plane.part else f"{plane.cache} "


def _held(group: Group) -> str:
    """What a block holds."""
    if group.store != "tokens":
        return "a state"
    held = count(group.tokens, "token") + (f" of {group.length}" if group.length != CONTEXT else "")
    return f"{held}, in a ring of {group.ring:,}" if group.ring else held


def _layers(side: Side, group: Group) -> set[tuple[str, int]]:
    planes = [p for worker in side.workers for p in worker.planes if p.group == group.name]
    loops = [(p.cache, n) for p in planes for axis, found, _ in p.loops if axis == "layer" for n in found]
    return {*loops, *((p.cache, n) for p in planes for n in p.layers)}


def tps(library: Library, model: Model) -> str:
    """The numbers of workers from 1 to 16 that the default engine can run, and the options that it needs for it."""
    options = settings(library, model, library.engine(library.default_engine))
    given = f",{options}" if options else ""
    found = [str(tp) for tp in range(1, MOST + 1) if runnable(library, model, f"tp={tp}{given}")]
    return (", ".join(found) or "none") + (f" with {code(options)}" if options else "")
