"""Random pairs of sides: random kinds, storage expressions, meshes, blocks and groups, nothing of any real engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import lcm
from random import Random

from hypothesis import strategies as st
from tests.random_sides.sides import cache, fixed, group, side, tensor

from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundTensor, Stride
from kvplan.compiler.check.oracle import planes
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.place import place
from kvplan.dsl.lang.expr import parse_expr
from kvplan.plan.needs import room
from kvplan.plan.request import Request
from kvplan.plan.types import ALL, CONTEXT, Needs

Axes = tuple[str, ...]
# Cases that are kept: as many as a test draws in a row.
KEPT = 128


@dataclass(frozen=True, slots=True)
class Case:
    """A pair of sides and a request that fits both. `texts` has the storage expressions, for a failing test to show;
    `elect` is how readers choose among equal holders."""

    prefill: BoundSide
    decode: BoundSide
    request: Request
    texts: tuple[str, ...]
    seed: int
    elect: str = "one"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of cache: `extents` of every axis, `tensors` with their axes; `shared` is the axis split over workers."""

    name: str
    extents: dict[str, int]
    tensors: tuple[BoundTensor, ...]
    layers: tuple[int, ...]
    tokens: bool
    needs: Needs = ALL
    length: str = CONTEXT
    unit: int = 1


def cases() -> st.SearchStrategy[Case]:
    """Random cases, by the seed that each stands for. A failing test shrinks to a small seed, not to a small case."""
    return st.integers(0, 10**6).map(case)


@lru_cache(KEPT)
def case(seed: int) -> Case:
    """The case that a seed stands for; tests of one file draw the same again and again."""
    return drawn(Random(seed), seed)


def twins(drawn: Case) -> Case:
    """The case with its decode side on both ends, and a last page that may be whole."""
    side, lengths = drawn.decode, dict(drawn.request.lengths)
    request = sample_request(side, side, drawn.request.tokens, drawn.seed % 100, lengths)
    return replace(drawn, prefill=side, request=replace(request, whole_last_page=True))


def drawn(random: Random, seed: int) -> Case:
    """The case that a source of random numbers comes to, which then goes on behind it."""
    depth = random.randint(1, 4)
    kinds = [kind(random, "a", depth, True)]
    kinds += [kind(random, "b", depth, True)] if random.random() < 0.3 else []
    kinds += [kind(random, "s", depth, False)] if random.random() < 0.4 else []
    whole = not any(t.split for k in kinds for t in k.tensors if k.tokens)
    texts: list[str] = []
    sides = [bound(random, kinds, depth, whole, texts) for _ in range(2)]
    own = {name: between(random) for name in sorted({k.length for k in kinds} - {CONTEXT})}
    request = sample_request(sides[0], sides[1], between(random), random.randint(0, 99), own)
    return Case(sides[0], sides[1], request, tuple(texts), seed, random.choice(("one", "spread")))


def between(random: Random) -> tuple[int, int]:
    """A range of tokens; a whole hit now and then."""
    first = random.randint(0, 20) if random.random() < 0.5 else 0
    return first, first + (random.randint(1, 40) if random.random() < 0.95 else 0)


def kind(random: Random, name: str, depth: int, tokens: bool) -> Kind:
    """One to four tensors over some of four axes; at most one axis of a tensor is shared over workers."""
    extents = {
        "head": random.randint(1, 6),
        "group": random.randint(1, 4),
        "dim": random.choice((1, 2, 3, 4, 8)),
        "tap": 3,
    }
    split = {a: "tp" for a in ("head", "group") if random.random() < 0.7}
    found = []
    units = random.choice(((1,), (1,), (1,), (2,), (4,), (1, 2), (2, 4)))
    for number in range(random.randint(1, 4)):
        axes = [a for a in extents if random.random() < 0.6]
        if "head" in axes and "group" in axes:
            axes.remove("group")
        rows = random.choice(units) if tokens else 1
        axes += [f"token{rows}"] if tokens else []
        random.shuffle(axes)
        sized = {a: extents.get(a, 0) for a in axes}
        mine = {a: m for a, m in split.items() if a in axes}
        found.append(tensor(f"{name}{number}", random.choice((1, 2, 4)), mine, rows, **sized))
    layers = tuple(sorted(random.sample(range(depth), random.randint(1, depth))))
    if not tokens:
        return Kind(name, extents, tuple(found), layers, tokens)
    length = "own" if random.random() < 0.1 else CONTEXT
    return Kind(
        name, extents, tuple(found), layers, tokens, needs(random), length, max(t.tokens_per_row for t in found)
    )


def needs(random: Random) -> Needs:
    """All tokens mostly; a window or a chunk, with sinks or without; sometimes those of whole blocks only."""
    sink = random.choice((0, 0, random.randint(1, 9)))
    choices = (ALL, ALL, Needs(keep=random.randint(0, 30), sink=sink), Needs(chunk=random.randint(1, 20), sink=sink))
    return replace(random.choice(choices), whole=random.choice((1, 1, 1, random.randint(2, 12))))


def bound(random: Random, kinds: Sequence[Kind], depth: int, whole: bool, texts: list[str]) -> BoundSide:
    """A side that stores `kinds` its own way; where tensors of tokens are `whole`, workers may take turns of tokens."""
    tp = random.randint(1, 6)
    dcp = random.randint(1, tp) if whole else 1
    rows = max(k.unit for k in kinds)
    sizes = [(rows * random.choice((1, 2, 3, 4, 6, 8)), random.choice((1, 1, 2, 3))) for _ in kinds]
    sizes = sizes[:1] * len(sizes) if random.random() < 0.3 else sizes
    caches = [stored(random, k, kernel if k.tokens else 0, texts) for k, (kernel, _) in zip(kinds, sizes, strict=True)]
    cut = random.randint(1, depth - 1) if depth > 1 and random.random() < 0.3 else depth
    stages = (range(cut), range(cut, depth)) if cut < depth else (range(depth),)
    chunk = rows * random.randint(1, 12) if dcp > 1 else 1
    arenas = random.choice(((0, 0, 0), (0, 1, 2)))
    groups = [
        g
        for c, a, t, (_, ratio) in zip(caches, arenas, texts[-len(caches) :], sizes, strict=False)
        for g in tables(random, c, ratio, a, t)
    ]
    groups = together(random, groups)
    caches = [replace(c, tensors=shared(random, c.tensors, tp)) for c in caches]
    caches, groups = rings(random, caches, groups)
    copies, apart = random.choice(("consecutive", "round_robin")), dcp * -(-tp // dcp) == tp and random.random() < 0.5
    plain = padded(random, side(caches, groups, tp, stages, dcp, chunk, copies, apart))
    if len(arenas[: len(caches)]) > len({*arenas[: len(caches)]}):
        return overlaid(plain)
    return replace(plain, caches=tuple(spread(random, plain, c) for c in plain.caches))


def rings(
    random: Random, caches: list[BoundCache], groups: list[BoundGroup]
) -> tuple[list[BoundCache], list[BoundGroup]]:
    """Groups that keep their last tokens in rings, sometimes, where a ring holds what is needed of all their caches."""
    sizes: dict[str, int] = {}
    for g in groups:
        mine = [c for c in caches if c.name in {name for name, _ in g.members}]
        least = [room(c.needs, max(t.tokens_per_row for t in c.tensors)) for c in mine]
        fits = g.store == "tokens" and None not in least and not any(c.needs.sink for c in mine)
        blocks = -(-max(n or 1 for n in least) // g.tokens) + random.choice((0, 0, 1, 3)) if fits else 0
        size = g.tokens * blocks if random.random() < 0.6 else 0
        sizes = {c.name: size for c in mine} | sizes
    kept = [replace(c, ring=sizes[c.name]) for c in caches]
    return kept, [replace(g, ring=sizes[g.members[0][0]]) for g in groups]


def together(random: Random, groups: list[BoundGroup]) -> list[BoundGroup]:
    """Token groups whose blocks hold the same tokens under one table, sometimes: one group of several caches."""
    alike: dict[object, list[BoundGroup]] = {}
    for g in groups if random.random() < 0.5 else ():
        alike.setdefault((g.store, g.tokens, g.kernel, g.arena, g.length, g.store == "state" and g.name), []).append(g)
    joined = [replace(some[0], members=tuple(m for g in some for m in g.members)) for some in alike.values()]
    return joined or groups


def shared(random: Random, tensors: tuple[BoundTensor, ...], tp: int) -> tuple[BoundTensor, ...]:
    """The tensors with shares listed for an axis, sometimes: any numbers, empty ones too."""
    extents = {axis: extent for t in tensors for axis, extent in t.axes if axis in dict(t.split)}
    listed = {axis: listing(random, extent, tp) for axis, extent in extents.items() if random.random() < 0.2}
    return tuple(replace(t, shares=tuple((a, n) for a, n in listed.items() if a in dict(t.split))) for t in tensors)


def listing(random: Random, items: int, workers: int) -> tuple[int, ...]:
    """How many of the items each worker has."""
    edges = sorted(random.randint(0, items) for _ in range(workers - 1))
    return tuple(b - a for a, b in pairwise([0, *edges, items]))


def stored(random: Random, kind: Kind, kernel: int, texts: list[str]) -> BoundCache:
    """A cache of `kind` in a random storage expression, in one allocation or one for each half of its tensors."""
    tiles = tiled(random, kind)
    parts = {"": list(kind.tensors)}
    if len(kind.tensors) > 1 and random.random() < 0.2:
        at = random.randint(1, len(kind.tensors) - 1)
        parts = {"one": list(kind.tensors[:at]), "two": list(kind.tensors[at:])}
    tiles |= {
        f"token{unit}": in_tiles(random, unit, kernel // unit)
        for unit in sorted({t.tokens_per_row for t in kind.tensors})
    }
    looped = {t.name: loops(t, tiles) for t in kind.tensors}
    text = {name: expression(random, [(t, looped[t.name]) for t in some], False) for name, some in parts.items()}
    texts.append(" | ".join(text.values()))
    made = cache(text.get("", text), *kind.tensors, name=kind.name, layers=kind.layers, kernel=kernel)
    return replace(made, needs=kind.needs, length=kind.length)


def in_tiles(random: Random, unit: int, rows: int) -> Axes:
    """The loops over the token axis of a page of `rows` rows: one, or a tile and a place in the tile."""
    axis, sizes = f"token{unit}", [n for n in (2, 3, 4) if rows and rows % n == 0 and rows > n]
    if not sizes or random.random() < 0.7:
        return (axis,)
    size = random.choice(sizes)
    return (f"{axis}/{size}", f"{axis}%{size}")


def tiled(random: Random, kind: Kind) -> dict[str, Axes]:
    """Axes that are not shared out and are stored in tiles here, with the loops that take their place."""
    free = [a for a, n in kind.extents.items() if n in (4, 8) and not any(a in dict(t.split) for t in kind.tensors)]
    ways = {a: [(f"{a}/2", f"{a}%2"), (f"{a}/4", f"{a}%4/2", f"{a}%2")] for a in free}
    return {a: random.choice(found) for a, found in ways.items() if random.random() < 0.4}


def loops(t: BoundTensor, tiles: dict[str, Axes]) -> Axes:
    """All loops that a tensor has to lie under."""
    return ("layer", "block", *(loop for a, _ in t.axes for loop in tiles.get(a, (a,))))


def expression(random: Random, items: list[tuple[BoundTensor, Axes]], inside: bool) -> str:
    """Items side by side, or under a loop that all of them still need; padding only under `block`."""
    if len(items) > 1 and random.random() < 0.35:
        at = random.randint(1, len(items) - 1)
        before, after = (expression(random, some, inside) for some in (items[:at], items[at:]))
        return f"{before}{padding(random, inside)} {after}"
    common = [a for a in items[0][1] if all(a in axes for _, axes in items)]
    common = common if inside else [a for a in common if a in ("layer", "block", "head")]
    common = common if inside or "block" not in common or random.random() < 0.8 else ["block"]
    if not common:
        if len(items) == 1:
            return items[0][0].name
        half = random.randint(1, len(items) - 1)
        return f"{expression(random, items[:half], inside)} {expression(random, items[half:], inside)}"
    axis = random.choice(common)
    rest = [(t, tuple(a for a in axes if a != axis)) for t, axes in items]
    now = inside or axis == "block"
    more = "+1" if inside and axis in ("tap", "dim", "head") and random.random() < 0.15 else ""
    return f"{axis}{more} {{ {expression(random, rest, now)}{padding(random, now)} }}"


def padding(random: Random, inside: bool) -> str:
    """Nothing mostly; a pad or an align."""
    if not inside or random.random() < 0.8:
        return ""
    return random.choice((f" pad({random.randint(1, 9)})", f" align({random.choice((2, 4, 16))})"))


def tables(random: Random, c: BoundCache, ratio: int, arena: int, text: str) -> list[BoundGroup]:
    """One block table for the cache, or two that take its layers in turns where every layer has planes of its own."""
    count = 2 if len(c.layers) > 1 and layer_planes(text) and random.random() < 0.3 else 1
    names = [f"{c.name}.{i}" for i in range(count)] if count > 1 else [c.name]
    ratio = ratio if c.kernel else 1
    found = [group((c, c.layers[i::count]), name=n, ratio=ratio, arena=arena) for i, n in enumerate(names)]
    return [replace(g, length=c.length) for g in found]


def layer_planes(text: str) -> bool:
    """Whether `layer` lies outside `block` everywhere: no `block {` has a `layer {` in it."""
    depth, under = 0, [-1]
    for word in text.replace("{", " { ").replace("}", " } ").split():
        depth += {"{": 1, "}": -1}.get(word, 0)
        under = [u for u in under if u <= depth] if word == "}" else under
        if word == "block":
            under.append(depth + 1)
        if word == "layer" and len(under) > 1 and depth >= under[-1]:
            return False
    return True


def overlaid(plain: BoundSide) -> BoundSide:
    """The side with logical blocks of all groups equally far apart, as where they lie in the same memory."""
    ratios = {name: g.ratio for g in plain.groups for name, _ in g.members}
    pages = [(p.cache, p.page) for w in plain.workers for p in planes(plain, w).values()]
    step = lcm(*ratios.values())
    block = -(-max(page * ratios[name] for name, page in pages) // step) * step
    return replace(plain, caches=tuple(replace(c, stride=fixed(block // ratios[c.name])) for c in plain.caches))


def padded(random: Random, plain: BoundSide) -> BoundSide:
    """The side with layers longer than their pages, sometimes, where they lie in one piece."""
    if random.random() < 0.7:
        return plain
    longer = replace(plain, caches=tuple(replace(c, padded=random.randint(1, 4096)) for c in plain.caches))
    try:
        for worker in plain.workers:
            place(longer, worker)
    except Refused:
        return plain
    return longer


def spread(random: Random, plain: BoundSide, c: BoundCache) -> BoundCache:
    """The cache with blocks further apart than a page is long, sometimes, by a number or by the row of its worker."""
    if random.random() < 0.15:
        gap = random.choice((1, 8, 64))
        return replace(c, stride=Stride(parse_expr(f"(block_bytes + {gap} - 1) // 8 * 8 + 8"), {}))
    if random.random() >= 0.3:
        return c
    pages = [p.page for w in plain.workers for p in planes(plain, w).values() if p.cache == c.name]
    return replace(c, stride=fixed(max(pages) + random.choice((0, 8))))
