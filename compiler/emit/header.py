"""The docstring of a plan: its title, both pages drawn, what moves, what was proved. ASCII, like its digits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap

from kvplan.compiler.cost.cost import TOKENS, Moves, PlanCost, StagedMoves, plan_cost
from kvplan.compiler.drawing.bars import bar, legend, levels
from kvplan.compiler.drawing.pieces import DrawnRows, Piece
from kvplan.compiler.drawing.tensors import page_of, page_pieces, tokens_per_row
from kvplan.compiler.emit.pylit import WIDTH
from kvplan.compiler.words import DOCS, FIGURES, many, part_name, readings
from kvplan.dsl.text.diagnostics import listed, ranges
from kvplan.dsl.text.grouped import grouped
from kvplan.plan.last_page import reads_by, whole_from_by
from kvplan.plan.spans import group_named
from kvplan.plan.types import Plan, Planes, Side, Worker

BAR = 64  # columns of the longest page
BEYOND = "Exactly the tokens that decode needs are written"
LAST_PAGE = ", or a whole last page where a request allows it"
OF_STATES = "; a state is written whole"
MOVED = f"What moves for {TOKENS:,} tokens, per decode worker. {FIGURES}:"
# The end of a command that needs layout files which do not come with kvplan.
HERE = "--layouts ."
RANK = ("in doubt", "prefill", "decode")
BOTH, BOTH_SIDES = "both", "Both sides"
# The indent of a field's second line and every further one.
FURTHER = "    "


def docstring(plan: Plan, facts: PlanCost, command: str) -> str:
    """Return the docstring with its quotes."""
    blocks = ["\n".join(_wrapped(title(plan))), "\n".join([*_wrapped(_emitted(plan, command)), *_command(command)])]
    return _quoted("\n\n".join([*blocks, *("\n".join(lines) for lines in summary(plan, facts))]))


def title(plan: Plan) -> str:
    """Return `A title: prefill tp=4 -> decode tp=2.`"""
    return f"{plan.title}{_between(plan)}"


def _between(plan: Plan) -> str:
    return f": prefill {plan.prefill.key} -> decode {plan.decode.key}."


def names_sides(plan: Plan, header: str) -> bool:
    """Whether the title in a plan's docstring has the keys of its sides, which no digest covers."""
    return " ".join(header.partition("\n\n")[0].split()).endswith(_between(plan))


def summary(plan: Plan, facts: PlanCost, width: int = WIDTH) -> list[list[str]]:
    """Return pages, what moves, then the rest, each as lines that fit `width` columns."""
    lines = [line for text in fields(plan, facts) for line in _wrapped(text, rest=FURTHER, width=width)]
    return [pages(plan, width), moved(facts, width), lines]


def fields(plan: Plan, facts: PlanCost) -> list[str]:
    """Return `Name: text` of every field of a header besides pages and costs; a name may occur more than once."""
    given = [f"{note[:1].upper()}{note[1:]}." for note in notes_once(facts.notes)]
    absent = [f"Not moved: {', '.join(plan.skipped)}, because one side lacks it."] if plan.skipped else []
    layers = [f"Layers: {facts.layers}."] if facts.layers else []
    last = LAST_PAGE if _completes(plan) else ""
    states = OF_STATES if any(group.store == "state" for group in plan.decode.groups) else ""
    return [
        *layers,
        f"Strategy: {facts.strategy}. {BEYOND}{last}{states}.",
        *readings(plan),
        *shared_memory(plan),
        *given,
        *absent,
        facts.proved,
    ]


def shared_memory(plan: Plan) -> list[str]:
    """Say which groups of either side share memory; empty if none do."""
    sides = (("prefill's", plan.prefill), ("decode's", plan.decode))
    found = grouped((names, word) for word, side in sides for names in sharing(side))
    said = [f"{words[0] if len(words) == 1 else 'on both sides'} {names}" for names, words in found.items()]
    return [f"Shared memory: {'; '.join(said)}. A block is of one of these groups at a time."] if said else []


def sharing(side: Side) -> list[str]:
    """Return `full and sliding`, the groups of an arena, of every arena that has several."""
    found = dict.fromkeys(side.sharing(group) for group in side.groups)
    return [listed(names, "and") for names in found if len(names) > 1]


def _completes(plan: Plan) -> bool:
    """Whether a last page may be copied whole."""
    workers = (reads_by(plan, worker) for worker in range(len(plan.reads)))
    return any(any(whole_from_by(plan, found).values()) for found in workers)


def written_facts(plan: Plan, header: str) -> PlanCost:
    """Return the facts of `plan`; notes and the proved sentence come from the fields of its header."""
    found = _written_fields(header)
    of = {"In doubt": ("in doubt",), "Prefill": ("prefill",), "Decode": ("decode",), BOTH_SIDES: ("prefill", "decode")}
    notes = [(side, text.removesuffix(".")) for name, text in found for side in of.get(name, ())]
    # A group may be called `Layers`, too: the model's field comes first, and the proof last.
    layers = next((text for name, text in found[:1] if name == "Layers"), "")
    proved = next((f"{name}: {text}" for name, text in found[-1:] if name == "Proved"), "")
    notes.sort(key=lambda note: RANK.index(note[0]))
    every = plan_cost(plan, proved, [f"{side}: {text}" for side, text in notes])
    return replace(every, layers=layers.removesuffix("."))


def written(header: str, *names: str) -> list[str]:
    """Return the texts of the fields with these names in a plan's header, such as `In doubt`."""
    return [text for name, text in _written_fields(header) if name in names]


def _written_fields(header: str) -> list[tuple[str, str]]:
    """Return the fields of a header's last block, the inverse of `fields`; further lines of a field are indented."""
    texts: list[str] = []
    for line in header.rpartition("\n\n")[2].splitlines():
        if line.startswith(FURTHER) and texts:
            texts[-1] += f" {line.strip()}"
        else:
            texts.append(line)
    return [(name, text) for name, _, text in (each.partition(": ") for each in texts)]


def pages(plan: Plan, width: int) -> list[str]:
    """Return both sides' pages, drawn to one scale, for every pair of caches."""
    caches = dict.fromkeys(entry.cache for worker in plan.decode.workers for entry in worker.planes)
    return [line for cache in caches for line in _drawing(plan, cache, width)]


def moved(facts: PlanCost, width: int) -> list[str]:
    """Say what moves per decode worker, and how many descriptors that takes in the worst case."""
    lines = _wrapped(MOVED, width=width)
    alike = grouped((replace(move, groups=""), move.groups) for move in facts.moves)
    said = [_move(move, ", ".join(pairs) + (", each" if len(pairs) > 1 else "")) for move, pairs in alike.items()]
    return lines + [line for text in said for line in _wrapped(text, "    ", "        ", width)]


def notes_once(notes: Sequence[str]) -> list[str]:
    """Return the notes of the two sides; a note that both have stands once."""
    of_decode = {note.removeprefix("decode: ") for note in notes if note.startswith("decode: ")}
    twice = {note.removeprefix("prefill: ") for note in notes if note.startswith("prefill: ")} & of_decode
    said = (f"{BOTH_SIDES.lower()}: {text}" if (text := note.partition(": ")[2]) in twice else note for note in notes)
    return list(dict.fromkeys(said))


def _drawing(plan: Plan, cache: str, width: int) -> list[str]:
    sides = [("prefill", plan.prefill), ("decode", plan.decode)]
    longest = max(entry.page_bytes for _, side in sides for _, entry in _entries(side, cache))
    lines, same = (_pages_of(BOTH, side, cache, longest, width)[0] for _, side in sides)
    if lines != same:
        prefill, shown = _pages_of("prefill", plan.prefill, cache, longest, width)
        lines = prefill + _pages_of("decode", plan.decode, cache, longest, width, shown)[0]
    return [f"A page of cache {cache} on {_drawn(sides, cache)}:", *lines]


def _drawn(sides: Sequence[tuple[str, Side]], cache: str) -> str:
    """Return `worker 0`, or the workers of both sides if the drawn pages belong to different ones."""
    drawn = ((name, side, _entries(side, cache)) for name, side in sides)
    numbers = {name: side.workers.index(entries[0][0]) for name, side, entries in drawn if entries}
    if len({*numbers.values()}) == 1:
        return f"worker {next(iter(numbers.values()))}"
    return " and ".join(f"{name} worker {number}" for name, number in numbers.items())


def _pages_of(
    name: str, side: Side, cache: str, longest: int, width: int, shown: Sequence[str] = ()
) -> tuple[list[str], Sequence[str]]:
    """Return a side's pages to scale, and the last one's legend, which is left out if it was `shown` before."""
    lines: list[str] = []
    for worker, entry in _entries(side, cache):
        body = page_pieces(page_of(worker, entry, group_named(side, entry.group)))
        words = [legend(piece) for piece in body]
        drawn = bar(levels("", body, entry.page_bytes)[0], max(1, BAR * entry.page_bytes // longest))
        lines += _page(name, side, entry, drawn, _numbered(body, drawn), width)
        lines += (
            [] if words == shown else [line for text in words for line in _wrapped(text, " " * 13, " " * 15, width)]
        )
        shown = words
    return lines, shown


def _numbered(body: Sequence[Piece], drawn: str) -> str:
    """Return `, by token` if a bar has room only for the numbers of its pieces."""
    rows = [piece for piece in body if isinstance(piece, DrawnRows)]
    if len(body) == len(rows) == 1 and rows[0].loop.count == 1:
        return _numbered(rows[0].body, drawn)
    names = [row.loop.name for row in rows]
    return f", by {names[0]}" if names and re.search(r"\|\s*\d+\s*\|", drawn) else ""


def _entries(side: Side, cache: str) -> list[tuple[Worker, Planes]]:
    """Return one entry per occurrence of `block`, of the first worker with the cache, and that worker."""
    for worker in side.workers:
        found = {entry.part: entry for entry in reversed(worker.planes) if entry.cache == cache}
        if found:
            return [(worker, entry) for entry in reversed(found.values())]
    return []


def _page(name: str, side: Side, entry: Planes, drawn: str, numbered: str, width: int) -> list[str]:
    part = f" {part_name(entry.part, (view.tensor for view in entry.views))}".rstrip()
    tail = f"{numbered}, blocks {entry.stride:,} B apart" if entry.stride != entry.page_bytes else numbered
    every = (e for worker in side.workers for e in worker.planes)
    others = sorted(
        {e.page_bytes for e in every if (e.cache, e.part) == (entry.cache, entry.part)} - {entry.page_bytes}
    )
    tail += f"; {', '.join(f'{page:,}' for page in others)} B on other workers" if others else ""
    lines = [f"    {name + part:<8} {drawn.ljust(BAR + 1)} {entry.page_bytes:>11,} B{tail}"]
    if len(lines[0]) > width:
        lines = [f"    {name + part:<8} {drawn}", f"{' ' * 13}{entry.page_bytes:,} B{tail}"]
    return [*lines, *_wrapped(_block(side, entry), " " * 13, " " * 15, width)]


def _block(side: Side, entry: Planes) -> str:
    group = group_named(side, entry.group)
    loops = " x ".join(many(len(indices), axis) for axis, indices, _ in entry.loops)
    count = f"a KV cache tensor for each of {loops}" if loops else "one KV cache tensor"
    groups = {other.group for worker in side.workers for other in worker.planes if other.cache == entry.cache}
    count += f" of {entry.group}, one of {len(groups)} groups of {entry.cache}" if len(groups) > 1 else ""
    if group.store == "state":
        return f"one slot; {count}{where(entry)}"
    rows = sorted({tokens_per_row(view, group.kernel) for view in entry.views})
    text = many(group.kernel, "token") + (f" in rows of {' and '.join(map(str, rows))}" if rows != [1] else "")
    if group.ratio > 1:
        text += f", {group.ratio:,} of them make a logical block of {group.tokens:,}"
    if group.shards > 1:
        text += f"; {group.shards} shards take turns of {group.chunk:,}"
    text += f"; a ring of {group.ring:,} tokens" if group.ring else ""
    return f"{text}; {count}{where(entry)}"


def where(entry: Planes) -> str:
    """Return `, in host memory`, empty if the side does not declare it."""
    first, _, rest = entry.memory.partition("+")
    more = f", further blocks in {rest} memory" if rest else ""
    return f", in {first} memory{more}" if first else ""


def _move(move: Moves, pairs: str) -> str:
    whole = ", for any number of tokens" if move.store == "state" else ""
    ways = "".join(f"; {_staged(way)}" for way in move.staged)
    rest = move.descriptors - move.spans * move.times if move.times else 0
    unit = f"whole {move.unit}" if rest else move.unit
    of = f"for each of {many(move.times, unit)}" if move.times > 1 else f"for a {unit}" if rest else f"per {unit}"
    of += f", and {rest:,} for the rest" if rest else ""
    together = "together " if move.reads > 1 else ""
    takes = f"{many(move.reads, 'read')}, {together}{many(move.spans, 'span')} of all layers {of}"
    return f"{workers(move.workers)}, {pairs}: {_cost(move)}{whole}; {takes}{ways}"


def _cost(of: Moves | StagedMoves) -> str:
    return f"{of.bytes:,} B in {many(of.descriptors, 'descriptor')}"


def _staged(way: StagedMoves) -> str:
    """Return `with unpack 67,108,864 B in 512 descriptors, predicted to take 35.10 ms instead of 250.00 ms`."""
    times = f"{way.us / 1e3:,.2f} ms instead of {way.direct_us / 1e3:,.2f} ms"
    return f"with {way.strategy} {_cost(way)}, predicted to take {times}"


def workers(numbers: tuple[int, ...]) -> str:
    """Return `decode worker 3`, `decode workers 0-3`, `decode workers 0, 2, 5`."""
    if len(numbers) == 1:
        return f"decode worker {numbers[0]}"
    return f"decode workers {ranges(numbers)}"


def _wrapped(text: str, first: str = "", rest: str = "", width: int = WIDTH) -> list[str]:
    return wrap(
        text, width - 4, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False, break_long_words=False
    )


def _emitted(plan: Plan, command: str) -> str:
    this = "In the folder of its layout files, this" if command.endswith(HERE) else "This"
    again = f"compile its deployment. {this} compiles the pair alone, to a file named after its sides:"
    return f"Emitted by kvplan from {plan.model}, do not edit. {DOCS}/plans.md explains it. To make it again, {again}"


def _command(command: str) -> list[str]:
    """Return the command line to copy; a long one continues after a backslash at its next option."""
    if len(command) <= WIDTH - 4:
        return [f"    {command}"]
    return ("    " + command.replace(" --", " \\\n        --")).splitlines()


def _quoted(text: str) -> str:
    """Put a text between triple quotes, raw if it has backslashes; no line ends in a space."""
    lines = [line.rstrip() for line in text.replace('"""', "'''").splitlines()]
    start = 'r"""' if "\\" in text else '"""'
    return start + "\n".join(lines) + '\n"""'
