"""Check a storage expression against the tensors of its kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from kvplan.dsl.lang.nodes import Align, Axis, Expr, Item, Leaf, Pad, Repeat, Storage
from kvplan.dsl.schema.fields import check_names
from kvplan.dsl.schema.kind import TensorSpec
from kvplan.dsl.text.diagnostics import Sink, close, listed, nearest
from kvplan.dsl.text.grouped import grouped
from kvplan.dsl.text.source import SourceSpan

PLACES = {"block": "E014", "layer": "E015"}


@dataclass(frozen=True, slots=True)
class LeafPath:
    """A leaf with the loops around it, outermost first."""

    leaf: Leaf
    loops: tuple[Axis, ...]


def check_storage(sink: Sink, storage: Storage, tensors: Mapping[str, TensorSpec], known: set[str]) -> None:
    """Report E005 and E010 to E022 in a storage expression. `known` are the names that its expressions may use."""
    before = len(sink.errors)
    for expr in _expressions(storage):
        check_names(sink, expr, known)
    spots = [spot for _, items in storage.parts for spot in _spots(items, ())]
    for leaf in (spot.leaf for spot in spots if spot.leaf.tensor not in tensors):
        help = nearest(leaf.tensor, tensors)
        sink.add("E010", f"storage '{storage.name}' has no tensor '{leaf.tensor}'", leaf.span, help=help)
    for place in PLACES:
        _check_place(sink, storage, place, [spot for spot in spots if spot.leaf.tensor in tensors])
    _check_axes(sink, storage, spots, tensors)
    tokens = {name for spec in tensors.values() for name, extent in spec.axes if extent is None}
    for _, items in storage.parts:
        _check_padding(sink, items, tokens, False)
    _check_cover(sink, storage, spots, tensors, len(sink.errors) > before)


def _spots(items: tuple[Item, ...], loops: tuple[Axis, ...]) -> Iterator[LeafPath]:
    for item in items:
        if isinstance(item, Leaf):
            yield LeafPath(item, loops)
        elif isinstance(item, Repeat):
            yield from _spots(item.body, (*loops, item.axis))


def _expressions(storage: Storage) -> Iterator[Expr]:
    for item in _all(tuple(item for _, items in storage.parts for item in items)):
        if isinstance(item, Pad | Align):
            yield item.size
        elif isinstance(item, Repeat):
            yield from (size for _, size in item.axis.tiles)
            yield from (item.axis.extra,) if item.axis.extra else ()


def _all(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield item
        yield from _all(item.body) if isinstance(item, Repeat) else ()


def _check_place(sink: Sink, storage: Storage, place: str, spots: list[LeafPath]) -> None:
    """Report tensors that are not under exactly one loop of `place` (E014, E015), those of equal count together."""
    found = grouped((sum(axis.name == place for axis in spot.loops), spot.leaf) for spot in spots)
    for count, leaves in ((count, leaves) for count, leaves in found.items() if count != 1):
        often = f"no '{place}'" if count == 0 else f"{count} loops of '{place}'"
        message = f"storage '{storage.name}' has {_tensors(leaf.tensor for leaf in leaves)} under {often}"
        sink.add(PLACES[place], message, leaves[0].span, help=f"every tensor lies under exactly one {place} {{ … }}")


def _tensors(names: Iterable[str]) -> str:
    once = list(dict.fromkeys(names))
    return f"tensor {once[0]}" if len(once) == 1 else f"tensors {listed(once, 'and')}"


def _check_axes(sink: Sink, storage: Storage, spots: list[LeafPath], tensors: Mapping[str, TensorSpec]) -> None:
    """Report loops over an axis that tensors under them lack (E012), each loop once."""
    known = [spot for spot in spots if spot.leaf.tensor in tensors]
    _check_loops(sink, storage, known, tensors)
    loops = [(axis, spot.leaf.tensor) for spot in known for axis in spot.loops if axis.name not in PLACES]
    lacking = grouped((axis, name) for axis, name in loops if axis.name not in dict(tensors[name].axes))
    for axis, names in lacking.items():
        own_axes = [name for name, _ in tensors[names[0]].axes]
        help = f"did you mean '{near[0]}'?" if (near := close(axis.name, own_axes)) else ""
        note = f"{names[0]} has axes {', '.join(own_axes)}, besides layer and block"
        which = f"tensor {names[0]} does" if len(names) == 1 else f"tensors {listed(names, 'and')} do"
        message = f"storage '{storage.name}' uses axis '{axis.name}', which {which} not have"
        sink.add("E012", message, axis.span.at(0, len(axis.name)), note, help=help)


def _check_loops(sink: Sink, storage: Storage, spots: list[LeafPath], tensors: Mapping[str, TensorSpec]) -> None:
    """Report axes that are not looped over once, or in two or more tiles (E016); each loop is reported once."""
    own = {name: tuple(axis for axis, _ in spec.axes) for name, spec in tensors.items()}
    wrong = grouped((misuse, spot.leaf) for spot in spots for misuse in _misused(spot, own[spot.leaf.tensor]))
    for (name, does, place), leaves in wrong.items():
        whose = _tensors(leaf.tensor for leaf in leaves)
        help = f"loop over it once, or in tiles that make up the axis: {name}/8 … {name}%8"
        message = f"storage '{storage.name}' {does} axis '{name}' of {whose}"
        sink.add("E016", message, place or leaves[0].span, help=help)


def _misused(spot: LeafPath, own: tuple[str, ...]) -> Iterator[tuple[str, str, SourceSpan | None]]:
    """Yield each misused axis, what the storage does with it, and the wrong loop if there is one."""
    stray = any(axis.name not in own and axis.name not in PLACES for axis in spot.loops)
    for name in own:
        loops = [axis for axis in spot.loops if axis.name == name]
        tiled = [axis for axis in loops if axis.tiles]
        if (len(loops) == 1 and not tiled) or (len(loops) > 1 and len(loops) == len(tiled)):
            continue
        if not loops and stray:
            continue
        does = "never loops over" if not loops else "has only one tile of" if len(loops) == 1 else "loops twice over"
        yield name, does, loops[-1].span if loops else None


def _check_padding(sink: Sink, items: tuple[Item, ...], tokens: set[str], inside: bool) -> None:
    """Report padding, tiles and loops over `tokens` outside `block`, where loops number planes (E017, E021, E022)."""
    for item in items:
        if not isinstance(item, Repeat):
            if isinstance(item, Pad | Align) and not inside:
                help = "only a page is padded; the engine says how far pages lie apart"
                sink.add("E022", "bytes are padded outside 'block'", item.span, help=help)
            continue
        axis = item.axis
        if axis.name in PLACES and (axis.tiles or axis.extra):
            sink.add("E021", f"'{axis.name}' takes no tiles and no padding", axis.span)
        elif what := "" if inside else _pageless(axis, tokens):
            sink.add("E017", f"{what} outside 'block'", axis.span, help="put the loop inside block { … }")
        _check_padding(sink, item.body, tokens, inside or axis.name == "block")


def _pageless(axis: Axis, tokens: set[str]) -> str:
    """The feature of a loop that keeps it from numbering planes; empty if it has none."""
    what = {"padding iterations": axis.extra, "tiles": axis.tiles, "tokens": axis.name in tokens}
    return next((word for word, there in what.items() if there), "")


def _check_cover(
    sink: Sink, storage: Storage, spots: list[LeafPath], tensors: Mapping[str, TensorSpec], quiet: bool
) -> None:
    """Report tensors that are missing (E011) or placed twice (E013). `quiet` skips E011: other errors may hide a
    tensor.

    A tensor with a condition may be missing: then a side on which it exists is refused.
    """
    seen: set[str] = set()
    for spot in spots:
        name = spot.leaf.tensor
        if name in seen and name in tensors:
            message = f"storage '{storage.name}' has tensor {name} twice"
            sink.add("E013", message, spot.leaf.span, help="every tensor lies in one place")
        seen.add(name)
    for name in () if quiet else [n for n, spec in tensors.items() if n not in seen and spec.when is None]:
        help = f"every tensor lies somewhere: add {name}[…]"
        sink.add("E011", f"storage '{storage.name}' lacks tensor {name}", storage.span, help=help)
