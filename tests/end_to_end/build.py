"""From a case to its two sides, bound by hand: no layout files, no engine."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from tests.end_to_end.dimensions import BLOCKS, MESHES, NEEDS, Case
from tests.end_to_end.storages import STATES, lay
from tests.random_sides.sides import cache, fixed, group, tensor

from kvplan.compiler.api import compile_bound
from kvplan.compiler.bound import BoundCache, BoundGroup, BoundSide, BoundTensor, BoundWorker, Stride
from kvplan.compiler.check.oracle import planes
from kvplan.dsl.lang.expr import parse_expr
from kvplan.plan.needs import room
from kvplan.plan.types import Plan

DEPTH = 4
TILES = {"prefill": 4, "decode": 8}
CUTS = {"prefill": 2, "decode": 1}


@lru_cache(maxsize=64)
def sides(case: Case) -> tuple[BoundSide, BoundSide]:
    """Both sides of a case."""
    return side(case, "prefill"), side(case, "decode")


@lru_cache(maxsize=64)
def compiled(case: Case, strategy: str = "direct") -> Plan:
    """The plan of a case, as its emitted text says it."""
    return compile_bound(*sides(case), {"elect": case["elect"], "strategy": strategy}).plan


def side(case: Case, word: str) -> BoundSide:
    """One side of a case."""
    tp, ways, turn = MESHES[case[f"{word} mesh"]]
    kernel, _ = BLOCKS[case[f"{word} block"]]
    caches = [_listed(c, case, word) for c in _caches(case, word)]
    cut = CUTS[word] if case[f"{word} stages"] == "cut" else DEPTH
    stages = [r for r in (range(cut), range(cut, DEPTH)) if r]
    at = [(p, t) for p in range(len(stages)) for t in range(tp)]
    workers = tuple(
        BoundWorker(n, (("pp", p), ("tp", t), ("dcp", t % ways), ("share", t // ways)), stages[p], t % ways)
        for n, (p, t) in enumerate(at)
    )
    sizes = (("pp", len(stages)), ("tp", tp), ("dcp", ways), ("share", tp // ways))
    unit = max(t.tokens_per_row for c in caches for t in c.tensors)
    chunk = {"row": unit, "block": kernel, "blocks": 3 * kernel, "uneven": -(-kernel * 3 // 2 // unit) * unit}
    made = BoundSide(
        f"tp={tp}", "e", "m", sizes, case[f"{word} copies"], tuple(caches), _groups(case, word, caches), workers, (),
        ways, chunk.get(turn, 1),
    )  # fmt: skip
    return _spread(made, case, word)


def tensors(case: Case) -> list[BoundTensor]:
    """The tensors of the first cache; heads are split over the mesh axis `share`, whose workers do not take turns."""
    heads, split = int(case["heads"]), {"head": "share"}
    if case["kind"] == "whole":
        return [tensor("k", 2, None, head=heads, token=0, dim=8), tensor("v", 2, None, head=heads, token=0, rope=4)]
    if case["kind"] == "rows of 4":
        return [tensor(n, 2, split, 4, head=heads, token4=0, dim=8) for n in ("k", "v")]
    if case["kind"] == "unlike rows":
        first = tensor("k", 2, split, head=heads, token=0, dim=8)
        return [first, tensor("v", 1, split, 4, head=heads, token4=0, dim=8)]
    if case["kind"] == "records":
        data = {n: tensor(n, 1, split, head=heads, token=0, dim=8) for n in ("k", "v")}
        return [t for n in data for t in (data[n], tensor(f"{n}s", 4, split, head=heads, token=0))]
    return [tensor(n, 2, split, head=heads, token=0, dim=8) for n in ("k", "v")]


def _caches(case: Case, word: str) -> list[BoundCache]:
    kernel, _ = BLOCKS[case[f"{word} block"]]
    order, padding = case[f"{word} order"], case[f"{word} padding"]
    first = tensors(case)
    found = [cache(lay(order, first, padding, kernel, TILES[word]), *first, name="a", layers=(0, 1, 3), kernel=kernel)]
    found[0] = replace(found[0], needs=NEEDS[case["needs"]])
    if case["second"] != "none":
        index = tensor("i", 1, None, head=2, token=0, width=8)
        text = lay(order, [index], padding, kernel, TILES[word])
        found.append(cache(text, index, name="b", layers=(0, 2, 3), kernel=kernel))
    if case["second"] == "own length":
        found[1] = replace(found[1], length="enc")
    found = _ringed(found, case, word)
    found.append(_state(case, word))
    if case["optional"] == word:
        extra = cache("layer { block { o[st] } }", tensor("o", 4, st=3), name="o", layers=(3,))
        found.append(replace(extra, optional=True))
    return found


def _ringed(caches: list[BoundCache], case: Case, word: str) -> list[BoundCache]:
    """The caches with a ring for the first, and for one that may share its table, as large as it must be or larger."""
    if {case["prefill ring"], case["decode ring"]} == {"none"}:
        return caches
    mine = [replace(c, needs=caches[0].needs) if c.length == caches[0].length else c for c in caches]
    if case[f"{word} ring"] == "none":
        return mine
    kernel, ratio = BLOCKS[case[f"{word} block"]]
    least = room(caches[0].needs, max(t.tokens_per_row for c in caches for t in c.tensors)) or 1
    ring = (-(-least // (kernel * ratio)) + 2 * (case[f"{word} ring"] == "spare")) * kernel * ratio
    return [replace(c, ring=ring) if c.length == caches[0].length else c for c in mine]


def _state(case: Case, word: str) -> BoundCache:
    """A convolution's window in parts, x shared by head, b and c by group, and the state behind it."""
    groups = int(case["state groups"])
    parts = [tensor(n, 2, {"group": "tp"}, group=groups, st=3, tap=3) for n in ("b", "c")]
    x = tensor("x", 2, {"head": "tp"}, head=4, dim=2, tap=3)
    z = tensor("z", 4, {"head": "tp"}, head=4, dim=2, st=3)
    return cache(STATES[case[f"{word} state"]], x, *parts, z, name="s", layers=(0, 1, 3))


def _listed(c: BoundCache, case: Case, word: str) -> BoundCache:
    """The cache with shares listed, some of them empty, where the case says so."""
    if case[f"{word} shares"] == "equal":
        return c
    tp, ways, _ = MESHES[case[f"{word} mesh"]]
    size = {"tp": tp, "share": tp // ways}
    found = []
    for t in c.tensors:
        extents = dict(t.axes)
        listed = tuple((axis, listing(extents[axis], size[mesh], word)) for axis, mesh in t.split)
        found.append(replace(t, shares=listed))
    return replace(c, tensors=tuple(found))


def listing(items: int, workers: int, word: str) -> tuple[int, ...]:
    """How many items each worker has: the last workers all of them on prefill, all but the last one on decode."""
    some = -(-workers // 2) if word == "prefill" else max(1, workers - 1)
    counts = [sum(item % some == n for item in range(items)) for n in range(some)] + [0] * (workers - some)
    return tuple(reversed(counts) if word == "prefill" else counts)


def _groups(case: Case, word: str, caches: list[BoundCache]) -> tuple[BoundGroup, ...]:
    _, ratio = BLOCKS[case[f"{word} block"]]
    form, found = case[f"{word} groups"], []
    together = [c for c in caches if c.kernel and c.length == caches[0].length]
    for c in caches:
        if form == "together" and c in together:
            layers = [(each, (n,)) for n in range(DEPTH) for each in together if n in each.layers]
            found += [group(*layers, name="ab", ratio=ratio)] if c is together[0] else []
        elif form == "halves" and c is caches[0]:
            found += [group((c, c.layers[i::2]), name=f"a.{i}", ratio=ratio) for i in range(2)]
        else:
            found.append(replace(group((c, c.layers), ratio=ratio if c.kernel else 1), length=c.length))
    found = [replace(g, ring=max(c.ring for c in caches if c.name == g.members[0][0])) for g in found]
    shared = case[f"{word} ids"] == "shared" or case[f"{word} padding"] == "overlaid"
    return tuple(replace(g, arena=0 if shared else i) for i, g in enumerate(found))


def _spread(made: BoundSide, case: Case, word: str) -> BoundSide:
    """Blocks further apart than a page: by a number, by what a whole row of planes takes, or so that groups overlay."""
    padding, (_, ratio) = case[f"{word} padding"], BLOCKS[case[f"{word} block"]]
    if padding == "fused row":
        stride = Stride(parse_expr("block_bytes"), {})
        return replace(made, caches=tuple(replace(cache, stride=stride) for cache in made.caches))
    if padding not in ("stride", "overlaid"):
        return made
    every = [p for w in made.workers for p in planes(made, w).values()]
    pages = {c.name: max(p.page for p in every if p.cache == c.name) for c in made.caches}
    if padding == "stride":
        return replace(made, caches=tuple(replace(c, stride=fixed(pages[c.name] + 40)) for c in made.caches))
    block = -(-max(pages[c.name] if c.kernel else -(-pages[c.name] // ratio) for c in made.caches) // 8) * 8
    return replace(
        made, caches=tuple(replace(c, stride=fixed(block if c.kernel else block * ratio)) for c in made.caches)
    )
