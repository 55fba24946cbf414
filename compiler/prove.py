"""Prove: check a plan as it was emitted against the two placements, without enumerating bytes.

What is proved, exactly: every byte that both sides store and a decode worker needs is written once; each comes from
the same (layer, tensor, coordinate); no span leaves its page, pairs padding with data, begins or ends in it, or cuts
an element; readers are spread evenly over the holders of an interval; everyone who holds something is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.cover import Region, check_cover
from kvplan.compiler.errors import ProofFailed
from kvplan.compiler.frame import check_balance, check_contract, check_frame
from kvplan.compiler.match import regions
from kvplan.compiler.own import meet, token_share
from kvplan.compiler.place import Unit
from kvplan.compiler.relative import relative, shape
from kvplan.compiler.route import Placed, pair_name
from kvplan.runtime.plan import Plan, Read


@dataclass(frozen=True, slots=True)
class Proof:
    """What was proved, as a sentence, and how many unlike (decode worker, unit) classes it took."""

    sentence: str
    classes: int


def prove(plan: Plan, prefill: Placed, decode: Placed) -> Proof:
    """Check all of it. Raises ProofFailed (P001..P012) with what is wrong and where."""
    check_frame(plan, prefill, decode)
    memo: dict[object, dict[str, list[Region]]] = {}
    done: set[object] = set()
    for worker in decode.side.workers:
        _check_strays(plan, decode, worker.number)
        for unit in decode.units[worker.number]:
            _check_unit(plan, prefill, decode, worker.number, unit, memo, done)
    check_balance(plan, prefill.side, decode.side)
    check_contract(plan, prefill)
    return Proof(claim(decode), len(done))


def claim(decode: Placed) -> str:
    """What a proof of this decode side says: bytes of each cache, with the axes that name an element."""
    words = []
    for cache in decode.side.caches:
        axes = list(dict.fromkeys(axis for tensor in cache.tensors for axis, _ in tensor.axes))
        size = sum(_bytes(decode.side, cache.name, tensor.name) for tensor in cache.tensors)
        per = "token" if cache.store == "tokens" else "state"
        named = ", ".join(["layer", *axes])
        words.append(f"{cache.name}: {len(cache.layers)} layers x {size:,} B a {per}, each from its own ({named})")
    return "Proved for every decode worker, each byte written once. " + "; ".join(words) + "."


def _bytes(side: BoundSide, cache: str, tensor: str) -> int:
    """Bytes of a tensor per layer and token (or state), over the whole model, copies counted once."""
    found = next(t for c in side.caches if c.name == cache for t in c.tensors if t.name == tensor)
    product = found.size
    for _, extent in found.axes:
        product *= extent or 1
    return product // found.unit


def _check_strays(plan: Plan, decode: Placed, number: int) -> None:
    """Every read goes into a unit that this worker has, so that none escapes what is checked unit by unit."""
    own = {(unit.cache, unit.group) for unit in decode.units[number] if unit.cache not in plan.skipped}
    for read in plan.reads[number]:
        if (read.cache, _into(plan, read)) not in own:
            raise ProofFailed(
                "P005", f"decode worker {number} reads {read.cache!r} of {read.pair!r}, which it does not have"
            )


def _check_unit(
    plan: Plan,
    prefill: Placed,
    decode: Placed,
    number: int,
    unit: Unit,
    memo: dict[object, dict[str, list[Region]]],
    done: set[object],
) -> None:
    """All reads of one unit of one decode worker cover it once for every share of the tokens they come from."""
    cache = next(c for c in decode.side.caches if c.name == unit.cache)
    if cache.name in plan.skipped:
        return
    mine = [read for read in plan.reads[number] if read.cache == unit.cache and _into(plan, read) == unit.group]
    shares: dict[object, list[Read]] = {}
    for read in mine:
        _check_read(plan, prefill, decode, number, read)
        shares.setdefault(token_share(prefill.side, cache, prefill.side.workers[read.worker]), []).append(read)
    turn = token_share(decode.side, cache, decode.side.workers[number])
    every = {token_share(prefill.side, cache, w) for w in prefill.side.workers}
    needed = {share for share in every if meet(share, turn)}
    if shares.keys() != needed:
        raise ProofFailed(
            "P004", f"decode worker {number}, {unit.cache}: reads {len(shares)} of {len(needed)} token shares"
        )
    for reads in shares.values():
        _check_share(prefill, decode, number, unit, reads, memo, done)


def _check_share(
    prefill: Placed,
    decode: Placed,
    number: int,
    unit: Unit,
    reads: Sequence[Read],
    memo: dict[object, dict[str, list[Region]]],
    done: set[object],
) -> None:
    cache = next(c for c in decode.side.caches if c.name == unit.cache)
    parts = [_regions(prefill, decode, number, unit, read, memo) for read in reads]
    key = (id(unit.parts), len(unit.layers), tuple(sorted(id(part) for part in parts)))
    if key in done:
        return
    extents = {
        t.name: {a: e - s for a, (s, e) in decode.holds[number][cache.name, t.name].items()} for t in cache.tensors
    }
    same = next(c for c in prefill.side.caches if c.name == unit.cache).kernel == cache.kernel
    tables = ["token"] if cache.store == "tokens" else ["page"]
    tables += ["page"] if cache.store == "tokens" and same else []
    for table in tables:
        token = cache.kernel if table == "page" and cache.store == "tokens" else 0
        regions_of = [region for part in parts for region in part[table]]
        for tensor in cache.tensors:
            axes = {"layer": len(unit.layers), **extents[tensor.name]}
            axes |= {a: token // tensor.unit for a, e in tensor.axes if not e and token}
            check_cover(
                f"decode worker {number}, {unit.cache}",
                tensor.name,
                axes,
                [r for r in regions_of if r.tensor == tensor.name],
            )
    done.add(key)


def _regions(
    prefill: Placed, decode: Placed, number: int, unit: Unit, read: Read, memo: dict[object, dict[str, list[Region]]]
) -> dict[str, list[Region]]:
    """What a read writes, its tables matched against both page trees; equal ones are matched once."""
    source = next(
        (u for u in prefill.units[read.worker] if u.cache == unit.cache and pair_name(u, unit) == read.pair), None
    )
    if source is None:
        raise ProofFailed(
            "P005", f"decode worker {number} reads {read.pair!r} from worker {read.worker}, which has none of it"
        )
    cache = next(c for c in decode.side.caches if c.name == unit.cache)
    shift: dict[str, tuple[tuple[str, int], ...]] = {}
    for tensor in cache.tensors:
        p, d = (s.holds[n][cache.name, tensor.name] for s, n in ((prefill, read.worker), (decode, number)))
        shift[tensor.name] = tuple((axis, p[axis][0] - d[axis][0]) for axis in d)
    there_unit, here_unit = relative(source, unit)
    if read.first != (source.first, unit.first):
        raise ProofFailed("P005", f"decode worker {number} reads {read.pair!r} from planes {read.first}, not its own")
    key = (*shape(there_unit, here_unit), read.table, str(shift))
    if key not in memo:
        memo[key] = regions(read.table, there_unit, here_unit, {tensor: dict(moved) for tensor, moved in shift.items()})
    _check_layers(number, unit, read, memo[key])
    return memo[key]


def _check_layers(number: int, unit: Unit, read: Read, found: dict[str, list[Region]]) -> None:
    mask = 0
    for region in found["page"] + found["token"]:
        mask |= dict(region.axes)["layer"]
    moved = tuple(layer for i, layer in enumerate(unit.layers) if mask >> i & 1)
    if moved != read.layers:
        raise ProofFailed(
            "P007", f"decode worker {number} from {read.worker}: moves layers {moved}, says {read.layers}"
        )


def _into(plan: Plan, read: Read) -> str:
    pair = next((pair for pair in plan.pairs if pair.name == read.pair), None)
    if pair is None:
        raise ProofFailed("P006", f"a read names the pair {read.pair!r}, which the plan does not have")
    return pair.decode


def _check_read(plan: Plan, prefill: Placed, decode: Placed, number: int, read: Read) -> None:
    if not 0 <= read.worker < len(prefill.side.workers):
        raise ProofFailed("P005", f"decode worker {number} reads prefill worker {read.worker}, which does not exist")
    cache = next(c for c in decode.side.caches if c.name == read.cache)
    named = {t for nests in (read.table.page, read.table.token) for nest in nests for t in nest.tensors}
    expected: dict[str, tuple[int, int]] = {}
    for tensor in (t for t in cache.tensors if t.name in named):
        theirs, ours = (
            prefill.holds[read.worker][cache.name, tensor.name],
            decode.holds[number][cache.name, tensor.name],
        )
        expected |= {a: (max(theirs[a][0], ours[a][0]), min(theirs[a][1], ours[a][1])) for a, _ in tensor.split}
    if tuple(sorted(expected.items())) != read.holds:
        raise ProofFailed(
            "P007", f"decode worker {number} from {read.worker}: says it holds {read.holds}, not {expected}"
        )
