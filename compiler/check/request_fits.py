"""Whether a request's tables fit a pair of sides: every block that the tokens need is there, in the pool, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kvplan.compiler.bound import BoundGroup, BoundSide
from kvplan.compiler.check.request import LARGEST, Ids, Request, Ring, Slot, Table
from kvplan.compiler.errors import BadInput
from kvplan.compiler.paging.rings import oldest
from kvplan.compiler.pair.groups import GroupPair, pair_groups
from kvplan.compiler.side.text import nearest
from kvplan.plan.types import CONTEXT, Needs


@dataclass(frozen=True, slots=True)
class RequestSide:
    """One side of a request: prefill or decode."""

    word: str
    side: BoundSide
    tables: Mapping[str, Table]
    met: Mapping[str, list[GroupPair]]


def check(asked: Request, prefill: BoundSide, decode: BoundSide) -> None:
    """Refuse what does not fit the sides. Raises BadInput (Q007..Q015)."""
    met = pair_groups(prefill, decode)
    _check_lengths(asked, decode, met)
    theirs: dict[str, list[GroupPair]] = {}
    ours: dict[str, list[GroupPair]] = {}
    for meeting in met:
        theirs.setdefault(meeting.prefill, []).append(meeting)
        ours.setdefault(meeting.decode, []).append(meeting)
    for who in (
        RequestSide("prefill", prefill, asked.prefill, theirs),
        RequestSide("decode", decode, asked.decode, ours),
    ):
        _check_groups(who, asked)
        _repeated(who)


def needed(needs: Needs, first: int, end: int, rows: int = 1) -> list[tuple[int, int]]:
    """The token ranges that a reader of [first, end) must have, in whole rows of `rows` tokens."""
    first, low, end = (token // rows * rows for token in (first, max(first, needs.low(end)), end))
    sink = min(-(-needs.sink // rows) * rows, low)
    return [(a, b) for a, b in ((first, min(sink, end)), (low, end)) if a < b]


def positions(side: BoundSide, group: BoundGroup, first: int, end: int) -> list[range]:
    """The block positions that tokens [first, end) lie in, on any worker. Ranges may overlap."""
    if group.ring:
        return _in_ring(group, first, end)
    if side.token_shards == 1 or group.store != "tokens":
        return [range(first // group.tokens, -(-end // group.tokens))] if first < end else []
    turn, round_ = side.interleave_tokens, side.interleave_tokens * side.token_shards
    # Whole rounds give every worker the same tokens; in the rounds at either end every turn is asked for its own.
    inner = range(-(-first // round_), end // round_)
    edges = [(first, end)] if inner.start >= inner.stop else [(first, inner.start * round_), (inner.stop * round_, end)]
    starts = [(a, b, t) for a, b in edges for t in range(a // turn * turn, b, turn)]
    local = [(max(a, t), min(b, t + turn), t // round_ * turn - t) for a, b, t in starts]
    found = [(a + shift, b + shift) for a, b, shift in local if a < b]
    found += [(inner.start * turn, inner.stop * turn)] if inner else []
    return [range(a // group.tokens, -(-b // group.tokens)) for a, b in found]


def _in_ring(group: BoundGroup, first: int, end: int) -> list[range]:
    """The blocks of a ring that tokens [first, end) lie in: behind its last one the first comes again."""
    blocks = group.ring // group.tokens
    start, stop = first // group.tokens, -(-end // group.tokens)
    if first >= end:
        return []
    if stop - start >= blocks:
        return [range(blocks)]
    low, high = start % blocks, (stop - 1) % blocks + 1
    return [range(low, high)] if low < high else [range(low, blocks), range(high)]


def _check_lengths(asked: Request, decode: BoundSide, met: Iterable[GroupPair]) -> None:
    groups = {group.name: group.length for group in decode.groups}
    known = sorted({groups[m.decode] for m in met} - {CONTEXT})
    for name in asked.lengths:
        if name not in known:
            raise BadInput(
                "Q014", f"no cache has the length {name!r}", nearest(name, known) if known else "leave it out"
            )
    for name in known:
        if name not in asked.lengths:
            said = f"the request has no tokens for the length {name!r}"
            raise BadInput("Q015", said, f'add "lengths": {{"{name}": [first needed, end]}}')


def _check_groups(who: RequestSide, asked: Request) -> None:
    groups = {g.name: g for g in who.side.groups}
    for name in who.tables:
        if name not in groups:
            raise BadInput("Q007", f"{who.word} has no group {name!r}", nearest(name, sorted(groups)))
    for name in sorted(who.met):
        if name not in who.tables:
            raise BadInput("Q008", f"{who.word} group {name!r} has no table", "give its block ids or its slot")
    for name, table in who.tables.items():
        _fits(who, groups[name], table, asked)


def _fits(who: RequestSide, group: BoundGroup, table: Table, asked: Request) -> None:
    said = f"{who.word} group {group.name!r}"
    want, need = _sort(group)
    if not isinstance(table, want):
        store = "a ring" if group.ring else group.store
        raise BadInput("Q009", f"{said} has a table of the wrong sort", f"it stores {store}: write {need}")
    if isinstance(table, Slot):
        _state_fits(said, who.side, table, asked.tokens[1])
        return
    if isinstance(table, Ring):
        _ring_fits(who, group, table, asked.range_of(group.length)[1])
    for meeting in who.met.get(group.name, ()):
        for first, end in needed(meeting.needs, *asked.range_of(group.length), meeting.rows):
            if isinstance(table, Ring):
                _check_held(said, group, table, first, meeting.rows)
            _blocks_fit(said, who.side, group, table, (first, end))
    _in_pool(said, who.side, table.ids)


def _sort(group: BoundGroup) -> tuple[type[Table], str]:
    if group.ring:
        return Ring, '{"ids": […], "at": …}'
    return (Ids, '{"first": …, "ids": […]}') if group.store == "tokens" else (Slot, '{"slot": …, "at": …}')


def _ring_fits(who: RequestSide, group: BoundGroup, table: Ring, end: int) -> None:
    """A ring has all its blocks' ids; one that is written stands after the tokens asked for, one read not before."""
    said, blocks = f"{who.word} group {group.name!r}", group.ring // group.tokens
    if len(table.ids) != blocks:
        have = f"{said} has {len(table.ids)} blocks, its ring of {group.ring} tokens {blocks}"
        raise BadInput("Q016", have, "give the ids of all of them, in order")
    if table.at < end or (who.word == "decode" and table.at > end):
        text = f"{said} stands after {table.at} tokens, asked for after {end}"
        raise BadInput("Q010", text, "use the ring as it stands at the end")


def _check_held(who: str, group: BoundGroup, table: Ring, first: int, rows: int) -> None:
    if first < (kept := oldest(table.at, group.ring, rows)):
        said = f"{who} stands after {table.at} tokens and keeps those from {kept} on, token {first} is needed"
        raise BadInput("Q017", said, f"ask while it stands after {first + group.ring} tokens at most")


def _state_fits(who: str, side: BoundSide, table: Slot, end: int) -> None:
    if table.at != end:
        raise BadInput(
            "Q010", f"{who} stands after {table.at} tokens, asked for after {end}", "use the state at the end"
        )
    _in_pool(who, side, (table.slot,))


def _blocks_fit(who: str, side: BoundSide, group: BoundGroup, table: Ids | Ring, tokens: tuple[int, int]) -> None:
    need = positions(side, group, *tokens)
    begin = table.first if isinstance(table, Ids) else 0
    have = range(begin, begin + len(table.ids))
    low, high = min(each.start for each in need), max(each.stop for each in need)
    if low < have.start or high > have.stop:
        whose = "" if group.length == CONTEXT else f" of the length {group.length!r}"
        text = f"{who} holds block positions [{have.start}, {have.stop}), tokens [{tokens[0]}, {tokens[1]}){whose} need"
        held = f"a block holds {group.tokens * side.token_shards} tokens"
        raise BadInput("Q011", f"{text} [{low}, {high})", f"{held}: give the missing ids")
    for position in (position for each in need for position in each):
        if table.ids[position - begin] is None:
            raise BadInput("Q011", f"{who} has no block at position {position}, where tokens are needed", "give its id")


def _in_pool(who: str, side: BoundSide, ids: Iterable[int | None]) -> None:
    for block in ids:
        if block is not None and block >= (LARGEST if side.blocks is None else side.blocks):
            raise BadInput(
                "Q012",
                f"{who} names block {block}, the pool has {side.blocks or LARGEST}",
                "give blocks= the pool's true size",
            )


def _repeated(who: RequestSide) -> None:
    """A block holds one position of one group; groups of an arena overlay the same memory."""
    seen: dict[tuple[int, int], str] = {}
    for group in who.side.groups:
        table = who.tables.get(group.name)
        ids = () if table is None else (table.slot,) if isinstance(table, Slot) else table.ids
        for block in (b for b in ids if b is not None):
            if (group.arena, block) in seen:
                both = f"{seen[group.arena, block]!r} and {group.name!r}"
                raise BadInput("Q013", f"{who.word} block {block} is given twice, in groups {both}", "give it once")
            seen[group.arena, block] = group.name
