"""Names for values that a plan writes once: each names its cache, group, share or workers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise

from kvplan.dsl.text.grouped import grouped
from kvplan.plan.types import Interval, Plan, Planes, Read, Side, Table

Names = dict[object, str]
# Names of a plan's own constants.
TAKEN = ("NOTIFY", "GROUP_PAIRS", "PLAN", "PLANES", "PREFILL_PLANES", "DECODE_PLANES")
MOST_JOINED = 48


def constant(name: str) -> str:
    """Return `name` as an upper-case Python identifier."""
    text = re.sub(r"\W+", "_", name.upper(), flags=re.ASCII).strip("_") or "GROUP"
    return f"N{text}" if text[0].isdigit() else text


def apart(names: Mapping[object, str], other: Callable[[object], str] | None = None) -> Names:
    """Make `names` unique: replace a name of several values by `other`, and number what is still equal."""
    count = Counter(names.values())
    if other and max(count.values(), default=1) > 1:
        return apart({value: name if count[name] == 1 else other(value) for value, name in names.items()})
    numbers = Counter[str]()
    found = Names()
    for value, name in names.items():
        numbers[name] += 1
        found[value] = name if count[name] == 1 else f"{name}_{numbers[name] - 1}"
    return found


def across(planes: Names, sorts: Iterable[tuple[Names, str]]) -> Iterator[Names]:
    """Yield the names of several kinds of values, each unique in a plan: a name already used gets its kind's word.

    The names of workers' `planes` never change.
    """
    taken = {*TAKEN, *planes.values()}
    for names, word in sorts:
        found = Names()
        for value, name in names.items():
            while name in taken:
                name = f"{name}_{word}"
            taken.add(name)
            found[value] = name
        yield found


def joined(names: Iterable[str], end: str) -> str:
    """Return `FULL_AND_SLIDING_VIEWS`."""
    known = list(dict.fromkeys(names))
    text = "_AND_".join(known)
    return f"{text if len(text) <= MOST_JOINED else f'{known[0]}_AND_OTHER'}_{end}"


def planes(side: Side) -> Iterator[Planes]:
    """Return all entries of all distinct workers of a side."""
    return (entry for every in dict.fromkeys(worker.planes for worker in side.workers) for entry in every)


def of_sides(plan: Plan, values: Callable[[Side], Iterable[tuple[str, object]]], end: str) -> Names:
    """Name values by their stems in either side, with the side's word if the other side has no such value."""
    users: dict[object, dict[str, dict[str, None]]] = {}
    for word, side in (("PREFILL", plan.prefill), ("DECODE", plan.decode)):
        for stem, value in values(side):
            users.setdefault(value, {}).setdefault(word, {})[stem] = None
    names = Names()
    for value, words in users.items():
        name = joined((stem for stems in words.values() for stem in stems), end)
        names[value] = name if len(words) > 1 else f"{next(iter(words))}_{name}"
    return apart(names)


def of_workers(plan: Plan) -> Names:
    """Name planes: `PLANES` of all workers, `PREFILL_PLANES` of a side, `DECODE_PLANES_2_TO_3` of some workers."""
    users: dict[object, dict[str, list[int]]] = {}
    for word, side in (("PREFILL", plan.prefill), ("DECODE", plan.decode)):
        for number, worker in enumerate(side.workers):
            users.setdefault(worker.planes, {}).setdefault(word, []).append(number)
    whole = {"PREFILL": len(plan.prefill.workers), "DECODE": len(plan.decode.workers)}
    names = Names()
    for value, words in users.items():
        parts = [word if len(found) == whole[word] else f"{word}_{_span(found)}" for word, found in words.items()]
        names[value] = "PLANES" if parts == ["PREFILL", "DECODE"] else joined(parts, "PLANES")
    return apart(names)


def of_readers(plan: Plan) -> Names:
    """Name the equal reads of several decode workers, `READS_0_TO_3`, unless they are short."""
    users = grouped((reads, number) for number, reads in enumerate(plan.reads))
    often = {reads: found for reads, found in users.items() if len(found) > 1 and len(plan.reads[found[0]]) > 1}
    return apart({reads: f"READS_{_span(found)}" for reads, found in often.items()})


def _span(numbers: list[int]) -> str:
    """Return `2`, `0_TO_3`, `0_2_4`, or for long lists the first and how many more."""
    if len(numbers) > 2 and all(b == a + 1 for a, b in pairwise(numbers)):
        return f"{numbers[0]}_TO_{numbers[-1]}"
    return "_".join(map(str, numbers)) if len(numbers) < 6 else f"{numbers[0]}_AND_{len(numbers) - 1}_MORE"


def of_tables(plan: Plan) -> Names:
    """Name tables by their caches: `KEYS`, or `KEYS_PART_1_OF_2` and `KEYS_OF_9_LAYERS` if a cache has several."""
    users = grouped((read.table, (number, read)) for number, reads in enumerate(plan.reads) for read in reads)
    plain = {table: "_AND_".join(dict.fromkeys(constant(r.cache) for _, r in found)) for table, found in users.items()}
    count = Counter(plain.values())
    return apart({t: name if count[name] == 1 else f"{name}{_words(plan, users, t)}" for t, name in plain.items()})


def _words(plan: Plan, users: Mapping[Table, list[tuple[int, Read]]], table: Table) -> str:
    """Return the words that distinguish a table from others of its caches: how many layers it moves, which share of a
    worker's holding, or else how large a share."""
    caches = {read.cache for _, read in users[table]}
    alike = [other for other, found in users.items() if caches & {read.cache for _, read in found}]
    layers = {other: {f"_OF_{len(read.layers)}_LAYERS" for _, read in users[other]} for other in alike}
    shares = {other: {_share(plan, number, read) for number, read in users[other]} for other in alike}
    extents = {other: {_extent(read) for _, read in users[other]} for other in alike}
    kept = "".join(_telling(words, table) for words in (layers, shares))
    return kept or _telling(extents, table)


def _telling(words: Mapping[Table, set[str]], table: Table) -> str:
    """Return the one word of a table, unless all tables have the same."""
    return next(iter(words[table])) if len(words[table]) == 1 and len(set().union(*words.values())) > 1 else ""


def _extent(read: Read) -> str:
    """Return `_2_HEADS`: the extent of every split axis that a read moves."""
    sizes = ((constant(axis), stop - start) for axis, (start, stop) in read.holds)
    return "".join(f"_{size}_{axis}{'S' if size > 1 else ''}" for axis, size in sizes)


def _share(plan: Plan, number: int, read: Read) -> str:
    """Return `_PART_1_OF_3`: the part of either worker's holding that a read moves, unless it moves all."""
    sides = plan.prefill.workers[read.worker], plan.decode.workers[number]
    for axis, held in read.holds:
        for worker in sides:
            whole = next((w for cache, name, w in worker.holds if (cache, name) == (read.cache, axis)), held)
            if part := _part(held, whole):
                return part
    return ""


def _part(held: Interval, whole: Interval) -> str:
    size, count = held[1] - held[0], whole[1] - whole[0]
    if held == whole or not size or count % size or (held[0] - whole[0]) % size:
        return ""
    return f"_PART_{(held[0] - whole[0]) // size + 1}_OF_{count // size}"
