"""The values of a plan as constructor calls; those used often or too long for a line get names of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import takewhile

from kvplan.compiler.emit.pylit import ConstructorCall, NameRef, Value, flat
from kvplan.plan.match_functions import WIDTH, identifier
from kvplan.plan.types import Group, Nest, Plan, Planes, Read, Side, Table, Worker

# How many fields of a constructor are written without their names; all of them for the classes not listed.
BARE: Mapping[type, int] = {Group: 2, Worker: 1, Side: 0, Table: 0}
LONG_LIST = 24
Names = dict[object, str]


@dataclass(frozen=True, slots=True)
class Constants:
    """Names by value: `fields` for the values of one field of a class, `ints` for lists of numbers anywhere, `readers`
    for all reads of a decode worker where others have the same."""

    fields: dict[tuple[type, str], Names] = field(default_factory=dict)
    ints: Names = field(default_factory=dict)
    readers: Names = field(default_factory=dict)

    def shown(self, value: object) -> Value:
        """`value` with every dataclass as a call and every hoisted value as its name."""
        if isinstance(value, tuple):
            if value and all(type(item) is int for item in value):
                return NameRef(self.ints[value]) if value in self.ints else numbers(value)
            return tuple(self.shown(item) for item in value)
        if is_dataclass(value) and not isinstance(value, type):
            return self.call(value)
        return value

    def call(self, value: object) -> ConstructorCall:
        """The constructor call of a dataclass; fields that have their default are left out."""
        kind = type(value)
        every = fields(value)  # type: ignore[arg-type]
        items = [
            (f.name, self._field(kind, f.name, getattr(value, f.name)))
            for f in every
            if getattr(value, f.name) != f.default
        ]
        aligned = takewhile(lambda both: both[0][0] == both[1].name, zip(items, every, strict=False))
        bare = min(BARE.get(kind, len(every)), len(list(aligned)))
        return ConstructorCall(kind.__name__, tuple(item for _, item in items[:bare]), tuple(items[bare:]))

    def _field(self, kind: type, name: str, value: object) -> Value:
        names = self.fields.get((kind, name))
        return NameRef(names[value]) if names and value in names else self.shown(value)


def numbers(value: tuple[object, ...]) -> Value:
    """A tuple of numbers, as `tuple(range(...))` where they are four or more at equal distances going up."""
    ints = [item for item in value if isinstance(item, int)]
    if len(ints) < 4 or ints[1] <= ints[0]:
        return value
    found = range(ints[0], ints[-1] + 1, ints[1] - ints[0])
    if tuple(found) != value:
        return value
    start = (found.start,) if found.start or found.step > 1 else ()
    step = (found.step,) if found.step > 1 else ()
    return ConstructorCall("tuple", (ConstructorCall("range", (*start, found.stop, *step)),))


def hoisted(plan: Plan) -> Constants:
    """The names of everything that a plan writes once."""
    found = Constants(ints=named(_lists(plan)))
    found.fields[Nest, "loops"] = named(_loops(plan))
    sides = (("PREFILL_", plan.prefill), ("DECODE_", plan.decode))
    found.fields[Planes, "views"] = _per_side(
        [(p, f"{constant(e.cache)}_VIEWS", e.views) for p, s in sides for e in planes(s)]
    )
    every = [entry for _, side in sides for entry in planes(side) if entry.loops]
    found.fields[Planes, "loops"] = named((f"{constant(entry.cache)}_LOOPS", entry.loops) for entry in every)
    found.fields[Worker, "planes"] = _per_side([(p, "PLANES", w.planes) for p, s in sides for w in s.workers])
    reads = list(dict.fromkeys(read for worker in dict.fromkeys(plan.reads) for read in worker))
    found.fields[Read, "table"] = named((f"{constant(read.cache)}_TABLE", read.table) for read in reads)
    if any(len(flat(found.call(read))) + 10 > WIDTH for read in reads):
        found.fields[Read, "holds"] = named((f"{constant(read.cache)}_HOLDS", read.holds) for read in reads)
    found.readers.update(_readers(plan))
    return found


def _readers(plan: Plan) -> Names:
    """What several decode workers read alike, unless it is little."""
    often = Counter(reads for reads in plan.reads if len(reads) > 1)
    return named(("WORKER_READS", reads) for reads, count in often.items() if count > 1)


def planes(side: Side) -> Iterator[Planes]:
    """All entries of all distinct workers of a side."""
    return (entry for every in dict.fromkeys(worker.planes for worker in side.workers) for entry in every)


def named(values: Iterable[tuple[str, object]]) -> Names:
    """A name for every distinct value: its stem, with a number where several values have the same stem."""
    users: dict[object, dict[str, None]] = {}
    for stem, value in values:
        users.setdefault(value, {})[stem] = None
    stems = {value: _common(list(names)) for value, names in users.items()}
    groups: dict[str, list[object]] = {}
    for value, stem in stems.items():
        groups.setdefault(stem, []).append(value)
    return {
        value: stem if len(alike) == 1 else f"{stem}_{number}"
        for stem, alike in groups.items()
        for number, value in enumerate(alike)
    }


def _common(names: list[str]) -> str:
    """The one name, or the words that several begin and end with: `DECODE_VIEWS` of the views of two caches."""
    if len(names) == 1:
        return names[0]
    words = [name.split("_") for name in names]
    ends = [word[0] for word in _alike(map(reversed, words))]
    begins = [word[0] for word in _alike(words)][: min(map(len, words)) - len(ends)]
    return "_".join([*begins, *reversed(ends)]) or names[0]


def _alike(words: Iterable[Iterable[str]]) -> Iterator[tuple[str, ...]]:
    return takewhile(lambda each: len(set(each)) == 1, zip(*words, strict=False))


def constant(name: str) -> str:
    """`name` as an upper-case identifier."""
    return identifier(name).upper().lstrip("_")


def _per_side(values: list[tuple[str, str, object]]) -> Names:
    """Names with the side's prefix, without one for what both sides have."""
    users: dict[object, set[str]] = {}
    for prefix, _, value in values:
        users.setdefault(value, set()).add(prefix)
    return named((stem if len(users[value]) > 1 else prefix + stem, value) for prefix, stem, value in values)


def _lists(plan: Plan) -> Iterator[tuple[str, object]]:
    """The lists of numbers that are too long to repeat."""
    for entry in (entry for side in (plan.prefill, plan.decode) for entry in planes(side)):
        yield from ((f"{constant(entry.cache)}_{constant(axis)}S", n) for axis, n, _ in entry.loops if _long(n))
    for read in (read for worker in plan.reads for read in worker):
        if _long(read.layers):
            yield f"{constant(read.cache)}_LAYERS", read.layers


def _loops(plan: Plan) -> Iterator[tuple[str, object]]:
    """The loops of every nest, by what they repeat."""
    tables = dict.fromkeys(read.table for worker in plan.reads for read in worker)
    for nest in (nest for table in tables for nest in (*table.page, *table.token) if nest.loops):
        yield "_".join(["EACH", *(f"{loop.count}_{constant(loop.axis)}S" for loop in nest.loops)]), nest.loops


def _long(indices: tuple[int, ...]) -> bool:
    return numbers(indices) is indices and len(flat(indices)) > LONG_LIST
