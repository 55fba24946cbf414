"""Compare a dump with a layout: find the cache layer of each dumped layer, and their differences.

Law: dumped layers and pieces of the layout are matched one to one, by number and by fit. It reports unmatched
layers, facts that differ within a pair if both sides know them, and block tables with different layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvplan.compiler.bound import BoundSide, BoundWorker
from kvplan.compiler.dumps.arrays import arrays, arrays_text, fields_text, filled_by, unsaid
from kvplan.compiler.dumps.dump import HEAD, Dump, DumpedLayer
from kvplan.compiler.dumps.expected import BETWEEN_TOKENS, PAGE, ExpectedLayer, facts_of, pieces
from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.keys import check_pool, side_keys
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.needs import ALL, Needs

Match = tuple[DumpedLayer, ExpectedLayer]
NONE = "none"
NEEDED = "a dump does not show which tokens decode needs"


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference: `dump` and `layout` are the two values, `layers` the dumped layers (or the layout's) with it."""

    cache: str
    what: str
    dump: str
    layout: str
    layers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NotCompared:
    """A fact of the layout that the dump lacks: `what` of these dumped `layers`, and `why`."""

    cache: str
    what: str
    why: str
    layers: tuple[str, ...]


def side_text(dump: Dump, engine: Engine, given: str) -> str:
    """Return the text of a dump's side: its options and its mesh; entries of `given` replace them.

    Raises BadInput (D010) for a mesh axis that the engine lacks, S00x for `given`.
    """
    check_pool(given)
    over = side_keys(engine, given)
    known = (*engine.mesh.workers, *engine.mesh.derived)
    for axis, size in dump.mesh.items():
        if axis not in known and size > 1:
            said = f"the dump's mesh has {axis}={size}, an axis that engine {engine.name!r} lacks"
            raise BadInput("D010", said, f"it has {', '.join(known)}")
    mesh = {axis: str(size) for axis, size in dump.mesh.items() if axis in known}
    found = {"engine": engine.name, **mesh, **dump.side, **over}
    return ",".join(f"{key}={value}" for key, value in found.items())


def worker_of(dump: Dump, side: BoundSide) -> BoundWorker:
    """Return the worker that printed the dump. Raises BadInput (D010)."""
    if (worker := side.at(dump.rank)) is not None:
        return worker
    said = ", ".join(f"{axis} {number}" for axis, number in dump.rank.items())
    raise BadInput("D010", f"no worker of the side is at {said}", "print the rank on every axis of the mesh")


def compare(dump: Dump, side: BoundSide) -> tuple[Difference, ...]:
    """Return every difference, once for all its layers. Raises BadInput (D010), Refused (C10x)."""
    worker = worker_of(dump, side)
    found = pieces(side, worker)
    pairs = matched(dump, found)
    dumped = {layer.name for layer, _ in pairs}
    here = {(piece.name, piece.layer) for _, piece in pairs}
    left = [layer for layer in dump.layers if layer.name not in dumped]
    missing = [piece for piece in found if (piece.name, piece.layer) not in here]
    alone = [
        *(Difference("", f"layer {x.layer}", f"{x.bytes} bytes a page", NONE, (x.name,)) for x in left),
        *(Difference(x.name, "layers", NONE, "stored", (f"layer {x.layer}",)) for x in missing),
    ]
    differing = [d for pair in pairs for d in _differences(dump, *pair)]
    return tuple(_together([*alone, *_sharing(dump, found, pairs), *differing, *_inside(pairs)]))


def not_compared(dump: Dump, side: BoundSide) -> tuple[NotCompared, ...]:
    """Return the facts that a dump lacks for a comparison, once for all their layers. Raises as `compare`."""
    pairs = matched(dump, pieces(side, worker_of(dump, side)))
    said = (
        (layer, piece, unsaid(layer, dump.groups[layer.group].store))
        for layer, piece in pairs
        if _divided(layer, piece)
    )
    found = grouped(((piece.name, _subject(piece), why), layer.name) for layer, piece, why in said if why)
    needs = {cache.name: cache.needs for cache in side.caches if not cache.ring}
    found |= grouped(
        ((piece.name, limit, NEEDED), layer.name)
        for layer, piece in pairs
        for limit in _unseen(needs.get(piece.cache, ALL))
    )
    return tuple(NotCompared(*same, tuple(names)) for same, names in found.items())


def _unseen(needs: Needs) -> Iterator[str]:
    """Yield the limits of `needs` that no dump shows."""
    limits = {"sink": needs.sink > 0, "whole": needs.whole > 1}
    yield from (f"needs.{name}" for name, given in limits.items() if given)


def matched(dump: Dump, found: Sequence[ExpectedLayer]) -> tuple[Match, ...]:
    """Return dumped layers with their pieces, the most similar first, in order of the dump."""
    by_layer = grouped((piece.layer, piece) for piece in found)
    costs = [
        (len(_differences(dump, layer, piece)), at, number)
        for at, layer in enumerate(dump.layers)
        for number, piece in enumerate(by_layer.get(layer.layer, []))
        if dump.groups[layer.group].store == piece.facts["store"]
    ]
    chosen: dict[int, ExpectedLayer] = {}
    taken: set[tuple[int, int]] = set()
    for _, at, number in sorted(costs):
        key = (dump.layers[at].layer, number)
        if at not in chosen and key not in taken:
            chosen[at] = by_layer[key[0]][number]
            taken.add(key)
    return tuple((layer, chosen[at]) for at, layer in enumerate(dump.layers) if at in chosen)


def _differences(dump: Dump, layer: DumpedLayer, piece: ExpectedLayer) -> list[Difference]:
    said = facts_of(dump, layer)
    page = int(said.pop(PAGE))
    fits = piece.least <= page <= piece.most
    pages = [] if fits else [Difference(piece.name, PAGE, str(page), str(piece.most), (layer.name,))]
    both = [(what, value, piece.facts[what]) for what, value in said.items() if what in piece.facts]
    other = [(what, str(a), str(b)) for what, a, b in both if a != b]
    differing = (Difference(piece.name, what, a, b, (layer.name,)) for what, a, b in other)
    return [*pages, *differing, *_parts(dump, layer, piece)]


def _parts(dump: Dump, layer: DumpedLayer, piece: ExpectedLayer) -> list[Difference]:
    """Compare the parts of a page, or of a row of it, if the dump gives them and the layout has rows."""
    found = arrays(layer, dump.groups[layer.group].store) if _divided(layer, piece) else ()
    if not found or filled_by(found, piece.fields):
        return []
    return [Difference(piece.name, _subject(piece), arrays_text(found), fields_text(piece.fields), (layer.name,))]


def _divided(layer: DumpedLayer, piece: ExpectedLayer) -> bool:
    """Whether a layout describes the parts of a whole state or row. Both must have rows in heads, or neither."""
    if layer.counts.get(HEAD, 1) > 1 and f"{HEAD}s" not in piece.facts:
        return False
    rows = piece.facts["store"] == "state" or piece.facts.get("tokens") == 1 or BETWEEN_TOKENS in piece.facts
    return rows and not piece.part


def _subject(piece: ExpectedLayer) -> str:
    return "parts of a state" if piece.facts["store"] == "state" else "parts of a row"


def _sharing(dump: Dump, found: Iterable[ExpectedLayer], pairs: Sequence[Match]) -> list[Difference]:
    """Return groups of the dump whose layers share no group of the layout, or share it with others."""
    tables = {group: {*names} for group, names in grouped((p.group, (p.name, p.layer)) for p in found).items()}
    differences = []
    for number in range(len(dump.groups)):
        here = [piece for layer, piece in pairs if layer.group == number]
        names = {(piece.name, piece.layer) for piece in here}
        if here and names != tables[here[0].group]:
            both = (_listed(names), _listed(tables[here[0].group]))
            where = f"groups[{number}], group {here[0].group}"
            differences.append(Difference(here[0].name, "layers that share a block table", *both, (where,)))
    return differences


def _listed(names: Iterable[tuple[str, int]]) -> str:
    """Return `attention 3 7 11, states 0 1 2`."""
    return ", ".join(f"{name} {' '.join(map(str, layers))}" for name, layers in grouped(sorted(names)).items())


def _inside(pairs: Sequence[Match]) -> list[Difference]:
    """Compare the places of layers inside a block: each one's distance from the first of its cache and group."""
    first = {(piece.name, piece.group): layer for layer, piece in pairs if piece.inside == 0}
    differences = []
    for layer, piece in pairs:
        base = first.get((piece.name, piece.group))
        if piece.inside is None or base is None or layer.offset - base.offset == piece.inside:
            continue
        values = (str(layer.offset - base.offset), str(piece.inside))
        differences.append(Difference(piece.name, "bytes from the first layer in a block", *values, (layer.name,)))
    return differences


def _together(differences: Iterable[Difference]) -> list[Difference]:
    found = grouped(((d.cache, d.what, d.dump, d.layout), name) for d in differences for name in d.layers)
    return [Difference(*same, tuple(names)) for same, names in found.items()]
