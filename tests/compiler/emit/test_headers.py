"""Every number of a plan's header, worked out again from the plan's tables by code of its own.

A header is taken apart sentence by sentence, and each sentence is compared with the plan. No digit may be left in text
that no sentence of the grammar took.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod

import numpy as np
import pytest
from tests.paths import ROOT
from tests.shares import later

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.emit.header import written_facts
from kvplan.dsl.library import load
from kvplan.plan.files.loader import load_plan, loaded
from kvplan.plan.types import Group, GroupPair, Nest, Plan, Planes, Read, Side, View

PLANS = sorted((ROOT / "examples/plans").glob("*/*.py"))
# Kinds and ways of storing that no plan of the examples has: tiles, records with scales, shares of tokens, stages.
OTHERS = (
    ("llama-3.1-8b", "tp=2,kv_dtype=nvfp4,order=LBHNC", "tp=4,kv_dtype=nvfp4,order=LBHNC"),
    ("llama-3.1-8b", "tp=2,order=BLHNC", "tp=1,order=BHLNC"),
    ("llama-3.1-8b", "engine=custom,pcp=2", "tp=1"),
    ("deepseek-v3", "tp=2,dcp=2,block=32", "tp=1,block=64"),
    ("deepseek-v3.2", "tp=2,kv_dtype=fp8_ds_mla", "tp=1,kv_dtype=fp8_ds_mla"),
    ("minimax-text-01", "tp=2,pp=2", "tp=4"),
)
SIZES = {"bf16": 2, "f16": 2, "f32": 4, "fp8": 1, "fp8_e4m3": 1, "fp8_e5m2": 1, "u8": 1, "i8": 1, "f64": 8, "i32": 4}
TOKENS = 1024


@cache
def header(name: str) -> tuple[Plan, str]:
    if name.endswith(".py"):
        path = ROOT / "examples/plans" / name
        return load_plan(path), ast.get_docstring(ast.parse(path.read_text())) or ""
    model, prefill, decode = name.split()
    made = compile_pair(load(), model, prefill, decode)
    return loaded(made.text.encode(), name), ast.get_docstring(ast.parse(made.text)) or ""


NAMES = [str(path.relative_to(ROOT / "examples/plans")) for path in PLANS] + [" ".join(other) for other in OTHERS]
every_header = pytest.mark.parametrize("name", NAMES)
some_headers = pytest.mark.parametrize("name", [*NAMES[::2], *later(NAMES[1::2])])


def number(text: str) -> int:
    return int(text.replace(",", ""))


PAGE_OF = "A page of cache "


def sections(text: str) -> dict[str, list[str]]:
    """The lines of a header by the section they are in: the pages of a cache, `moves`, `closing`."""
    _, _, *blocks = text.split("\n\n")
    found: dict[str, list[str]] = {}
    for block in blocks:
        first, *lines = block.splitlines()
        if first.startswith(PAGE_OF):
            for line in (first, *lines):
                if line.startswith(PAGE_OF):
                    mine = found.setdefault(line.removeprefix(PAGE_OF).partition(" on ")[0], [])
                else:
                    mine.append(line)
        elif first.startswith("What moves"):
            assert number(re.findall(r"for ([\d,]+) tokens", first)[0]) == TOKENS
            found["moves"] = [line for line in lines if line.startswith("    ")]
        else:
            found["closing"] = [first, *lines]
    return found


def joined(lines: list[str], indent: int) -> list[str]:
    """Wrapped lines as one each: those that stand further in than `indent` go on."""
    found: list[str] = []
    for line in lines:
        if len(line) - len(line.lstrip()) > indent:
            found[-1] += " " + line.strip()
        else:
            found.append(line.strip())
    return found


# Pages.


@dataclass(frozen=True)
class Page:
    """A header's text on one page: its first line, the line on its block, and the legend of its parts."""

    side: str
    part: str | None
    sizes: str
    bar: str
    block: str
    legend: tuple[str, ...]


def pages(lines: list[str]) -> list[Page]:
    """The pages of a cache. One whose legend is that of the page before it has none of its own."""
    starts = [n for n, line in enumerate(lines) if re.match(r"    (prefill|decode|both)", line)]
    found: list[Page] = []
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        head, bar, sizes = taken(r"    (.+?) +(\|.*\|) *(.*)", lines[start])
        rest = joined(lines[start + 1 : end], 13)
        sizes = sizes or rest.pop(0)
        side, _, part = head.partition(" ")
        legend = tuple(rest[1:]) or found[-1].legend
        found.append(Page(side, part.strip() or None, sizes, bar, rest[0], legend))
    return found


def named(entry: Planes) -> str | None:
    """The name that a header gives an allocation: its tensors, if its own name is a number."""
    part = entry.part
    return "+".join(dict.fromkeys(view.tensor for view in entry.views)) if part and part.isdigit() else part


def first_entries(side: Side, cache: str) -> dict[str | None, Planes]:
    for worker in side.workers:
        mine = {named(entry): entry for entry in reversed(worker.planes) if entry.cache == cache}
        if mine:
            return mine
    return {}


@some_headers
def test_pages(name: str) -> None:
    plan, text = header(name)
    caches = {entry.cache for worker in plan.decode.workers for entry in worker.planes}
    said = sections(text)
    assert caches == said.keys() - {"moves", "closing"}
    for cache_name in caches:
        drawn = pages(said[cache_name])
        for word, side in (("prefill", plan.prefill), ("decode", plan.decode)):
            entries = first_entries(side, cache_name)
            mine = {page.part: page for page in drawn if page.side in (word, "both")}
            assert mine.keys() == entries.keys()
            for part, page in mine.items():
                check_sizes(page.sizes, side, entries[part])
                check_block(page.block, side, entries[part])
                check_legend(page.legend, entries[part], group(side, entries[part].group))
                check_bar(page.bar, entries[part])


def group(side: Side, name: str) -> Group:
    return next(each for each in side.groups if each.name == name)


def check_sizes(said: str, side: Side, entry: Planes) -> None:
    page, on, others = taken(
        r"([\d,]+) B(?:, by \w+)?(?:, blocks ([\d,]+) B apart)?(?:; (.+) B on other workers)?", said
    )
    alike = {e.page_bytes for w in side.workers for e in w.planes if (e.cache, e.part) == (entry.cache, entry.part)}
    assert number(page) == entry.page_bytes
    assert number(on or page) == entry.stride
    assert {number(size) for size in others.split(", ") if size} == alike - {entry.page_bytes}


def check_block(said: str, side: Side, entry: Planes) -> None:
    mine = group(side, entry.group)
    *parts, planes = said.split("; ")
    loops, name, count, first, rest = taken(
        r"(?:one KV cache tensor|a KV cache tensor for each of (.+?))(?: of (\S+), one of (\d+) groups of \S+)?"
        r"(?:, in (\S+) memory)?(?:, further blocks in (\S+) memory)?",
        planes,
    )
    assert "+".join(filter(None, (first, rest))) == entry.memory
    assert [many(each) for each in loops.split(" x ") if each] == [(len(ns), axis) for axis, ns, _ in entry.loops]
    groups = {e.group for w in side.workers for e in w.planes if e.cache == entry.cache}
    assert (name, count) == ((entry.group, str(len(groups))) if len(groups) > 1 else ("", ""))
    if mine.store == "state":
        assert parts == ["one slot"]
        return
    facts = {"kernel": mine.kernel, "tokens": mine.tokens, "ratio": mine.ratio, "ring": mine.ring}
    facts |= {"shards": mine.shards, "chunk": mine.chunk if mine.shards > 1 else 1}
    assert block_facts(parts) == {**facts, "rows": sorted({tokens_of_row(view, mine) for view in entry.views})}


def block_facts(parts: list[str]) -> dict[str, object]:
    found: dict[str, object] = {"ratio": 1, "shards": 1, "chunk": 1, "ring": 0}
    blocks = r"([\d,]+) tokens?(?: in rows of ([\d and]+))?(?:, ([\d,]+) of them make a logical block of ([\d,]+))?"
    kernel, rows, ratio, tokens = taken(blocks, parts[0])
    found |= {"kernel": number(kernel), "tokens": number(tokens or kernel), "ratio": number(ratio or "1")}
    for part in parts[1:]:
        if part.startswith("a ring"):
            found["ring"] = number(*taken(r"a ring of ([\d,]+) tokens", part))
        else:
            found["shards"], found["chunk"] = map(number, taken(r"(\d+) shards take turns of ([\d,]+)", part))
    return {**found, "rows": [int(n) for n in rows.split(" and ")] if rows else [1]}


def check_bar(bar: str, entry: Planes) -> None:
    """Cells name repetitions that there are."""
    most = max(count for view in entry.views for _, count, _ in (*view.axes, ("", 1, 0)))
    indices = [
        int(cell.split()[-1]) for cell in bar[1:-1].split("|") if cell.split()[-1:] and cell.split()[-1].isdigit()
    ]
    assert all(index < most for index in indices)
    assert indices == sorted(indices)


def tokens_of_row(view: View, mine: Group) -> int:
    return mine.kernel // rows_of(view) if mine.kernel else 1


def rows_of(view: View) -> int:
    return prod(count for axis, count, _ in view.axes if axis.split("/")[0] == "token")


# Legends are laid out again, from the first byte on: every element has to lie where the plan's views say.


def check_legend(legend: tuple[str, ...], entry: Planes, mine: Group) -> None:
    end, elements = laid(legend, 0)
    assert end == entry.page_bytes
    assert elements.keys() == {view.tensor for view in entry.views}
    for view in entry.views:
        steps = [np.arange(count) * step for _, count, step in view.axes]
        expected = view.offset + sum(np.ix_(*steps), np.zeros((1,) * len(steps), np.int64))
        assert np.array_equal(np.sort(elements[view.tensor]), np.sort(expected.reshape(-1)))
        assert ("row" in " | ".join(legend)) or tokens_of_row(view, mine) == 1


def laid(pieces: Iterable[str], at: int) -> tuple[int, dict[str, np.ndarray]]:
    """The end of pieces that begin at `at`, and the first bytes of all elements of their tensors."""
    found: dict[str, list[np.ndarray]] = {}
    for piece in pieces:
        at, elements = one_laid(piece, at)
        for tensor, offsets in elements.items():
            found.setdefault(tensor, []).append(offsets)
    return at, {tensor: np.concatenate(parts) for tensor, parts in found.items()}


def one_laid(piece: str, at: int) -> tuple[int, dict[str, np.ndarray]]:
    if piece.startswith("padding"):
        return at + number(*taken(r"padding ([\d,]+) B", piece)), {}
    if hit := re.fullmatch(r"([\d,]+) \S+, ([\d,]+) B each: (.+)", piece):
        count, step = number(hit[1]), number(hit[2])
        end, elements = laid(split(hit[3]), 0)
        assert end == step
        starts = at + np.arange(count) * step
        return at + count * step, {t: (starts[:, None] + offsets).reshape(-1) for t, offsets in elements.items()}
    tensor, size, made, apart = taken(r"(\S+) ([\d,]+) B \((.+?)\)((?:, .+)?)", piece)
    *axes, dtype = made.split(" x ")
    gaps = re.findall(r", ([\d,]+ \S+) of ([\d,]+) B, ([\d,]+) B apart", apart)
    offsets, end = strided(
        [many(axis) for axis in axes], SIZES[dtype], [(many(a), number(b), number(c)) for a, b, c in gaps]
    )
    assert number(size) == offsets.size * SIZES[dtype]
    assert len(apart) == sum(len(f", {a} of {b} B, {c} B apart") for a, b, c in gaps)
    return at + end, {tensor: at + offsets}


def strided(
    axes: list[tuple[int, str]], size: int, gaps: list[tuple[tuple[int, str], int, int]]
) -> tuple[np.ndarray, int]:
    """Offsets of the elements of a tensor whose axes lie side by side but for `gaps`, and the bytes it takes."""
    offsets, left = np.zeros(1, np.int64), list(gaps)
    for count, axis in reversed(axes):
        step = size
        if left and left[-1][0] == (count, axis):
            (_, each, step) = left.pop()
            assert each == size
        offsets = (np.arange(count)[:, None] * step + offsets).reshape(-1)
        size = count * step
    assert not left
    return offsets, size


def split(body: str) -> Iterator[str]:
    """The pieces of a body; those in brackets whole, without them."""
    depth, piece = 0, ""
    for word in body.split(" | "):
        piece += (" | " if piece else "") + word
        depth += word.count("[") - word.count("]")
        if not depth:
            yield piece[1:-1] if piece.startswith("[") else piece
            piece = ""


# Moves, counted token by token.


@some_headers
def test_moves(name: str) -> None:
    plan, text = header(name)
    said = {key: facts for line in joined(sections(text)["moves"], 4) for key, facts in moves(plan, line)}
    truth = {
        (n, p.name): cost(plan, n, p) for n in range(len(plan.reads)) for p in plan.group_pairs if of_pair(plan, n, p)
    }
    assert said == truth


def moves(plan: Plan, line: str) -> Iterator[tuple[tuple[int, str], tuple[object, ...]]]:
    who, size, descriptors, per, reads, spans, times, unit, rest, staged = taken(
        r"decode workers? (.+): ([\d,]+) B in ([\d,]+) descriptors?(, for any number of tokens)?; "
        r"([\d,]+) reads?, (?:together )?([\d,]+) spans? of all layers (?:per|for (a|each of [\d,]+)) "
        r"(?:whole )?(state|block|run|token)s?(?: of tokens)?(?:, and ([\d,]+) for the rest)?((?:; .+)?)",
        line,
    )
    count = 1 if times == "a" else number(times.removeprefix("each of ") or "0")
    assert not times or count * number(spans) + number(rest or "0") == number(descriptors)
    assert bool(rest) == (f"whole {unit}" in line)
    names = {pair.name for pair in plan.group_pairs}
    words = [word for word in who.split(", ") if word != "each"]
    pairs = [word for word in words if word in names]
    workers = [n for word in words if word not in names for n in numbers(word)]
    assert (unit == "state") == bool(per)
    for worker, pair in product(workers, pairs):
        yield (worker, pair), (number(reads), number(spans), unit, number(descriptors), number(size), ways(staged))


def ways(said: str) -> dict[str, tuple[int, int]]:
    """Descriptors and bytes by way of each stage, which is said to take less time than going direct."""
    found = {}
    for way in said.split("; ")[1:]:
        name, size, descriptors, less, more = taken(
            r"with (unpack|pack) ([\d,]+) B in ([\d,]+) descriptors?, predicted to take ([\d,.]+) ms instead of "
            r"([\d,.]+) ms",
            way,
        )
        assert float(less.replace(",", "")) < float(more.replace(",", ""))
        found[name] = number(descriptors), number(size)
    return found


def numbers(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def of_pair(plan: Plan, worker: int, pair: GroupPair) -> list[Read]:
    return [read for read in plan.reads[worker] if read.groups == pair.name]


def cost(plan: Plan, worker: int, pair: GroupPair) -> tuple[object, ...]:
    reads = of_pair(plan, worker, pair)
    theirs, ours = group(plan.prefill, pair.prefill), group(plan.decode, pair.decode)
    paged = all(read.table.per_page for read in reads)
    shards: dict[int, int] = {}
    for read in reads:
        shard = 0 if theirs.ring else plan.prefill.workers[read.worker].shard
        nests = read.table.per_page if paged else read.table.per_token
        shards[shard] = shards.get(shard, 0) + sum(prod(loop.count for loop in nest.loops) for nest in nests)
    # Tokens with bytes between them are spans of their own, however long the run is.
    close = {nest.token_step == (nest.bytes, nest.bytes) for read in reads for nest in read.table.per_token}
    tokens = " or ".join(word for word, adjoin in (("run", True), ("token", False)) if adjoin in close)
    unit = "state" if ours.store == "state" else "block" if paged else tokens
    found = [descriptors_and_bytes(plan, worker, pair, read) for read in reads]
    descriptors, size = sum(n for n, _ in found), sum(size for _, size in found)
    return len(reads), max(shards.values()), unit, descriptors, size, by_stages(plan, worker, pair, reads, found)


def by_stages(
    plan: Plan, worker: int, pair: GroupPair, reads: list[Read], direct: list[tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """Descriptors and bytes by way of each stage that a read of a pair has; reads that have none go direct."""
    found = {}
    for name, side in (("unpack", 0), ("pack", 1)):
        ranges = [getattr(read.table, name) for read in reads]
        if any(ranges):
            each = [
                in_ranges(plan, worker, pair, read, side) if some else straight
                for read, some, straight in zip(reads, ranges, direct, strict=True)
            ]
            found[name] = sum(descriptors for descriptors, _ in each), sum(size for _, size in each)
    return found


def in_ranges(plan: Plan, worker: int, pair: GroupPair, read: Read, side: int) -> tuple[int, int]:
    """A descriptor for every range of every plane of every page that is touched; whole pages that follow each other are
    one."""
    source, reader = plan.prefill.workers[read.worker], plan.decode.workers[worker]
    groups = group(plan.prefill, pair.prefill), group(plan.decode, pair.decode)
    where = blocks_and_rows(pair, *groups, source.shard, reader.shard)
    blocks = sorted(set(where[:, 2 * side].tolist()))
    chains = sum(block - 1 not in blocks for block in blocks)
    strides, _ = plane_sizes((source, reader)[side].planes)
    descriptors = size = 0
    for part in (read.table.unpack, read.table.pack)[side]:
        for plane in range(part.plane, part.plane + part.planes * part.step, part.step):
            dense = strides[read.first[side] + plane] == part.bytes
            descriptors, size = descriptors + (chains if dense else len(blocks)), size + len(blocks) * part.bytes
    return descriptors, size


@cache
def plane_sizes(entries: tuple[Planes, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Block stride and page of every plane, by number."""
    found = {}
    for entry in entries:
        for index in product(*(range(len(numbers)) for _, numbers, _ in entry.loops)):
            at = entry.first + sum(i * step for i, (_, _, step) in zip(index, entry.loops, strict=True))
            found[at] = entry.stride, entry.page_bytes
    every = np.array([found[n] for n in range(len(found))])
    return every[:, 0], every[:, 1]


def descriptors_and_bytes(plan: Plan, worker: int, pair: GroupPair, read: Read) -> tuple[int, int]:
    source, reader = plan.prefill.workers[read.worker], plan.decode.workers[worker]
    theirs, ours = group(plan.prefill, pair.prefill), group(plan.decode, pair.decode)
    where = blocks_and_rows(pair, theirs, ours, source.shard, reader.shard)
    (page, token), times = without_layers(read.table.per_page, read.table.per_token)
    sizes = plane_sizes(source.planes), plane_sizes(reader.planes)
    descriptors, size = counted(page, token, read.first, *sizes, where, pair.page_rows)
    return descriptors * times, size * times


def without_layers(*tables: tuple[Nest, ...]) -> tuple[list[tuple[Nest, ...]], int]:
    """Tables of one layer, where each has planes of its own, and how many layers there are: planes are never joined."""
    nests = [nest for table in tables for nest in table]
    leads = {nest.loops[:1] for nest in nests}
    others = [loop for nest in nests for loop in nest.loops[1:] if loop.prefill[0] or loop.decode[0]]
    planes = {(nest.prefill[0], nest.decode[0]) for nest in nests}
    (lead, *more) = leads
    if more or others or len(planes) > 1 or not lead or not (lead[0].prefill[0] and lead[0].decode[0]):
        return list(tables), 1
    assert lead[0].prefill[1] == lead[0].decode[1] == 0
    return [tuple(replace(nest, loops=nest.loops[1:]) for nest in table) for table in tables], lead[0].count


def blocks_and_rows(pair: GroupPair, theirs: Group, ours: Group, p_shard: int, d_shard: int) -> np.ndarray:
    """(prefill block, row in it, decode block, row in it) of every row of tokens of a request that both hold."""
    if ours.store == "state":
        return np.zeros((1, 4), np.int64)
    found = []
    for row in range(TOKENS // pair.rows):
        first, last = row * pair.rows, row * pair.rows + pair.rows - 1
        source, target = place(theirs, first, pair.rows, p_shard), place(ours, first, pair.rows, d_shard)
        if source and target and is_needed(pair, first, last):
            found.append([*source, *target])
    return np.array(found, np.int64).reshape(-1, 4)


def is_needed(pair: GroupPair, first: int, last: int) -> bool:
    keep, chunk, sink = pair.needs.keep, pair.needs.chunk, pair.needs.sink
    late = (keep is None or last >= TOKENS - keep) and (chunk is None or last >= TOKENS - TOKENS % chunk)
    return late or first < sink


def place(mine: Group, token: int, rows: int, shard: int) -> tuple[int, int] | None:
    """Kernel block and row in it, where logical block i has the id 2 * i; None where another shard holds the token."""
    turn, within = divmod(token, mine.chunk)
    if mine.shards > 1 and turn % mine.shards != shard:
        return None
    local = turn // mine.shards * mine.chunk + within if mine.shards > 1 else token
    local = local % mine.ring if mine.ring else local
    block = 2 * (local // mine.tokens) * mine.ratio + local % mine.tokens // mine.kernel
    return block, local % mine.kernel // rows


def counted(
    page: tuple[Nest, ...], token: tuple[Nest, ...], first: tuple[int, int], prefill: tuple[np.ndarray, ...],
    decode: tuple[np.ndarray, ...], where: np.ndarray, rows: int,
) -> tuple[int, int]:  # fmt: skip
    """Spans of all rows of tokens, those of whole pages by the page table; then how many are left once joined."""
    pairs, inverse, counts = np.unique(where[:, [0, 2]], axis=0, return_inverse=True, return_counts=True)
    full = counts == rows if token else np.ones(len(pairs), bool)
    full &= bool(page)
    whole = np.column_stack(
        [pairs[full][:, 0], np.zeros(full.sum(), int), pairs[full][:, 1], np.zeros(full.sum(), int)]
    )
    rest = where[~full[inverse.reshape(-1)]]
    spans = np.concatenate(
        [expanded(page, whole, first, prefill, decode), expanded(token, rest, first, prefill, decode)]
    )
    return joined_spans(spans, prefill, decode), int(spans[:, 4].sum())


def expanded(
    nests: tuple[Nest, ...], where: np.ndarray, first: tuple[int, int], *sizes: tuple[np.ndarray, ...]
) -> np.ndarray:
    """(prefill plane, byte, decode plane, byte, bytes) of every span of every nest for every row of `where`."""
    found = [np.zeros((0, 5), np.int64)]
    for nest in nests:
        turns = np.array(list(product(*(range(loop.count) for loop in nest.loops))), np.int64)
        ends = []
        for side in (0, 1):
            plane, byte = (nest.prefill, nest.decode)[side]
            steps = np.array([(loop.prefill, loop.decode)[side] for loop in nest.loops], np.int64).reshape(-1, 2)
            planes = first[side] + plane + turns @ steps[:, 0]
            block, row = where[:, 2 * side], where[:, 2 * side + 1]
            inside = row * (nest.token_step[side] if nest.token_step else 0)
            inside = inside + sum((row // hop[0] * hop[1 + side] for hop in nest.hops), np.zeros_like(row))
            bytes_ = (byte + turns @ steps[:, 1])[:, None] + inside + sizes[side][0][planes][:, None] * block
            ends += [np.broadcast_to(planes[:, None], bytes_.shape).reshape(-1), bytes_.reshape(-1)]
        found.append(np.column_stack([*ends, np.full(len(ends[0]), nest.bytes)]))
    return np.concatenate(found)


def joined_spans(spans: np.ndarray, prefill: tuple[np.ndarray, ...], decode: tuple[np.ndarray, ...]) -> int:
    """Descriptors that are left once adjoining spans are joined; padding between two whole pages may be crossed where
    both sides have the same."""
    spans = spans[np.lexsort((spans[:, 3], spans[:, 2]))]
    one, other = spans[:-1], spans[1:]
    strides, pages = (np.stack([p[one[:, 0]], d[one[:, 2]]]) for p, d in zip(prefill, decode, strict=True))
    alike = (strides[0] == strides[1]) & (pages[0] == pages[1]) & (one[:, 4] == pages[0])
    far = np.where(alike, strides[0], one[:, 4])
    follows = (one[:, 0] == other[:, 0]) & (one[:, 2] == other[:, 2])
    return len(spans) - int((follows & (other[:, 1] - one[:, 1] == far) & (other[:, 3] - one[:, 3] == far)).sum())


# The bytes that are read for a request, overrides, and proofs.


@pytest.mark.parametrize("pair", OTHERS[:4], ids=" ".join)
def test_facts_of_a_plan_on_disk_are_those_of_its_compilation(pair: tuple[str, str, str]) -> None:
    made = compile_pair(load(), *pair)
    found = written_facts(made.plan, ast.get_docstring(ast.parse(made.text)) or "")
    assert found.notes
    assert (found.notes, found.layers, found.proved) == (made.facts.notes, made.facts.layers, made.facts.proved)


@every_header
def test_closing(name: str) -> None:
    plan, text = header(name)
    before, _, proved = " ".join(line.strip() for line in sections(text)["closing"]).partition(
        "Proved: each byte that decode needs is written exactly once, from the byte with the same coordinates. "
    )
    check_proved(plan, proved.removesuffix("."))
    told: dict[str, dict[str, object]] = {}
    shared: dict[str, set[frozenset[str]]] = {}
    for sentence in re.split(r"\.(?: |$)", before):
        if hit := re.fullmatch(r"(.+): ((?:only|a row|tokens are) .+)", sentence):
            names = hit[1].removesuffix(", each").split(", ")
            told |= {name: reading(hit[2]) for name in names}
        elif hit := re.fullmatch(r"(Prefill|Decode): (\S+)=(\d+) is given; the engine would derive (\d+)", sentence):
            check_override(plan, hit[1].lower(), hit[2], hit[3], int(hit[4]))
        elif hit := re.fullmatch(r"Layers: (.+)", sentence):
            check_layers(plan, hit[1])
        elif hit := re.fullmatch(r"Strategy: (\w+) on (\S+): .+", sentence):
            assert (hit[1], hit[2]) == (dict(plan.options)["strategy"], load().default_machine)
        elif hit := re.fullmatch(r"Shared memory: (.+)", sentence):
            shared = memories(hit[1])
        else:
            assert not re.search(r"\d", sentence) or "is stored only when" in sentence
    assert {pair.name: told.get(pair.name, ALL) for pair in plan.group_pairs} == {
        pair.name: truly(plan, pair) for pair in plan.group_pairs
    }
    assert shared == {word: found for word in ("prefill", "decode") if (found := overlaid(getattr(plan, word)))}


def memories(said: str) -> dict[str, set[frozenset[str]]]:
    """The groups of every memory that several share, by side."""
    found: dict[str, set[frozenset[str]]] = {}
    for part in said.split("; "):
        where, names = taken(r"(prefill's|decode's|on both sides) (.+)", part)
        for word in ("prefill", "decode"):
            if where in (f"{word}'s", "on both sides"):
                found.setdefault(word, set()).add(frozenset(re.split(r", | and ", names)))
    return found


def overlaid(side: Side) -> set[frozenset[str]]:
    """Groups of one arena, unless all of them are parts of one table."""
    found: dict[int, list[Group]] = {}
    for one in side.groups:
        found.setdefault(one.arena, []).append(one)
    return {frozenset(g.name for g in every) for every in found.values() if len({g.table or g.name for g in every}) > 1}


ALL: dict[str, object] = {"keep": None, "chunk": None, "sink": 0, "rows": 1, "length": "context"}
READING = {
    "sink": r"the first ([\d,]+) tokens?", "keep": r"the last ([\d,]+) tokens?",
    "chunk": r"those from the last multiple of ([\d,]+) on", "rows": r"a row per ([\d,]+) tokens",
}  # fmt: skip


NEXT = r" \(a window of ([\d,]+) includes the next token\)"


def reading(said: str) -> dict[str, object]:
    found = dict(ALL)
    for fact, pattern in READING.items():
        for hit in re.findall(pattern, said):
            found[fact] = number(hit)
        said = re.sub(pattern, "", said)
    for length in re.findall(r"tokens are those of '(.+?)'", said):
        found["length"] = length
    for window in re.findall(NEXT, said):
        assert number(window) - 1 == found["keep"]
    said = re.sub(NEXT, "", said)
    assert not re.search(r"\d", said)
    return found


def truly(plan: Plan, pair: GroupPair) -> dict[str, object]:
    needs, length = pair.needs, group(plan.decode, pair.decode).length
    limited = needs.keep is not None or needs.chunk is not None
    limits = {"keep": needs.keep, "chunk": needs.chunk, "sink": needs.sink if limited else 0}
    return {**limits, "rows": pair.rows, "length": length}


def check_layers(plan: Plan, said: str) -> None:
    """A header counts the layers of each cache of either side, and the layers that store nothing."""
    layers, drafts, stored = taken(r"(\d+)(?: and (\d+) draft)? \((.+)\)", said)
    every = int(layers) + int(drafts or 0)
    parts = [taken(r"(all|\d+) stores? (\S+)", part) for part in stored.split(", ")]
    found = {name: every if count == "all" else number(count) for count, name in parts}
    workers = (*plan.prefill.workers, *plan.decode.workers)
    truth: dict[str, set[int]] = {}
    for entry in (entry for worker in workers for entry in worker.planes):
        truth.setdefault(entry.cache, set()).update(layers_of(entry))
    left = every - len(set().union(*truth.values()))
    assert found == {name: len(layers) for name, layers in truth.items()} | ({"nothing": left} if left else {})


def check_override(plan: Plan, side: str, name: str, given: str, derived: int) -> None:
    """The side bound again without the override has the derived number."""
    library, mine = load(), getattr(plan, side)
    options = mine.key.split(",")
    assert f"{name}={given}" in options
    plain = bind(library, library.model(plan.model), ",".join(o for o in options if o != f"{name}={given}"))
    assert derived in {n for each in plain.groups for n in (each.tokens, each.kernel, each.ratio)}


def check_proved(plan: Plan, said: str) -> None:
    found = {}
    for part in said.split("; "):
        cache_name, layers, sizes, axes = taken(r"(\S+): (\d+) layers x (.+?), coordinates \((.+)\)", part)
        each = {per: number(size) for size, per in (taken(r"([\d,]+) B per (.+)", one) for one in sizes.split(" and "))}
        found[cache_name] = int(layers), each, set(axes.split(", "))
    assert found == {name: stored(plan.decode, name) for name in found}
    assert found.keys() == {read.cache for reads in plan.reads for read in reads}


def stored(side: Side, name: str) -> tuple[int, dict[str, int], set[str]]:
    """Layers of a cache, its bytes by layer and row (or state) over all holdings, and the axes of its elements."""
    layers = {n for worker in side.workers for e in entries(worker.planes, name) for n in layers_of(e)}
    some = min(layers)
    sizes: dict[str, int] = {}
    axes, seen = {"layer"}, set()
    for worker in side.workers:
        held = {axis: interval for cache_name, axis, interval in worker.holds if cache_name == name}
        mine = [e for e in entries(worker.planes, name) if some in layers_of(e)]
        for entry, view in ((e, view) for e in mine for view in e.views):
            per, size = of_view(entry, view, group(side, entry.group))
            own = names_of(entry, view, per)
            key = (entry.part, view.tensor, *(held.get(axis) for axis in sorted(own)))
            sizes[per] = sizes.get(per, 0) + (0 if key in seen else size)
            seen.add(key)
            axes |= own
    return len(layers), sizes, axes


def entries(planes: tuple[Planes, ...], name: str) -> list[Planes]:
    return [entry for entry in planes if entry.cache == name]


def layers_of(entry: Planes) -> tuple[int, ...]:
    return entry.layers or next(indices for axis, indices, _ in entry.loops if axis == "layer")


def of_view(entry: Planes, view: View, mine: Group) -> tuple[str, int]:
    """The unit that a number of bytes is for, and the bytes of a tensor in one layer and one row."""
    tokens = tokens_of_row(view, mine)
    per = "state" if mine.store == "state" else "token" if tokens == 1 else f"row of {tokens} tokens"
    outside = prod(len(indices) for axis, indices, _ in entry.loops if axis != "layer")
    inside = prod(count for axis, count, _ in view.axes if axis.split("/")[0] not in ("layer", "token"))
    return per, outside * inside * SIZES[view.dtype]


def names_of(entry: Planes, view: View, per: str) -> set[str]:
    axes = {axis.split("/")[0] for axis, _, _ in view.axes} | {axis.split("/")[0] for axis, _, _ in entry.loops}
    return {"row" if axis == "token" and per.startswith("row") else axis for axis in axes}


@every_header
def test_the_title(name: str) -> None:
    plan, text = header(name)
    title, command, *_ = text.split("\n\n")
    assert " ".join(title.split()) == f"{plan.title}: prefill {plan.prefill.key} -> decode {plan.decode.key}."
    words = command.replace("\\\n", " ").split()
    assert words[words.index("--prefill") + 1] == plan.prefill.key
    assert words[words.index("--decode") + 1] == plan.decode.key


def taken(pattern: str, text: str) -> tuple[str, ...]:
    """The groups of a pattern that is all of a text; those that are not there empty."""
    hit = re.fullmatch(pattern, text)
    assert hit, f"not said like {pattern}: {text}"
    return tuple(part or "" for part in hit.groups())


def many(text: str) -> tuple[int, str]:
    """`5 layers` and `1 layer`; `64 row`."""
    count, word = taken(r"([\d,]+) (\S+)", text)
    return number(count), word.removesuffix("s") if number(count) != 1 else word


def test_a_wrong_number_is_found() -> None:
    """The test can fail: headers with one number changed, wherever it stands, do not pass."""
    name = next(each for each in NAMES if "deepseek_v4" in each)
    plan, text = header(name)
    said = sections(text)["closing"]
    wrong = " ".join(said).partition("each byte written once. ")[2].removesuffix(".").replace("583 B", "582 B")
    with pytest.raises(AssertionError):
        check_proved(plan, wrong)
    entry = first_entries(plan.prefill, "few")[None]
    page, *_ = pages(sections(text)["few"])
    check_legend(page.legend, entry, group(plan.prefill, entry.group))
    for before, after in (
        ("448 B (64", "511 B (64"),
        ("7 B, 8 B apart", "7 B, 9 B apart"),
        ("padding 64", "padding 65"),
    ):
        changed = tuple(line.replace(before, after) for line in page.legend)
        assert changed != page.legend
        with pytest.raises(AssertionError):
            check_legend(changed, entry, group(plan.prefill, entry.group))
