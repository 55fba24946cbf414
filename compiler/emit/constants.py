"""The values of a plan as constructor calls; frequent values, or ones too long for a line, get names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from functools import cache
from itertools import groupby
from operator import attrgetter

from kvplan.compiler.emit.names import (
    Names,
    across,
    apart,
    constant,
    of_readers,
    of_sides,
    of_tables,
    of_workers,
    planes,
)
from kvplan.compiler.emit.pylit import ConstructorCall, ForEach, NameRef, Value, flat
from kvplan.plan.types import Group, GroupPair, Loop, Nest, Plan, Planes, Read, View, Worker

# How many fields of a constructor are written without their names: its own name first, then numbers with names.
BARE: Mapping[type, int] = {Group: 2, Loop: 1, Nest: 1, GroupPair: 1, Planes: 2, View: 2, Worker: 1}
# Fields that are left out if they equal another one.
ALIKE: Mapping[tuple[type, str], str] = {
    (GroupPair, "decode"): "name",
    (GroupPair, "prefill"): "name",
    (Planes, "group"): "cache",
    (Planes, "stride"): "page_bytes",
    (Read, "cache"): "groups",
}
# Long fields, which stand after the others.
LAST = ("views",)
LONG_LIST = 14
Rows = tuple[tuple[str, tuple[int, ...], object], ...]
MANY_ALIKE = 3


@dataclass(frozen=True, slots=True)
class Constants:
    """Names by value: `fields` for values of one field of a class, `ints` for lists of numbers anywhere, `readers` for
    reads that several decode workers share, `rows` for groups that are written together."""

    fields: dict[tuple[type, str], Names] = field(default_factory=dict)
    ints: Names = field(default_factory=dict)
    readers: Names = field(default_factory=dict)
    rows: Names = field(default_factory=dict)

    def shown(self, value: object) -> Value:
        """Return `value` with every dataclass as a call and every hoisted value as its name."""
        if isinstance(value, tuple):
            if value and all(type(item) is int for item in value):
                return NameRef(self.ints[value]) if value in self.ints else numbers(value)
            return tuple(shown for same in _runs(value) for shown in self.folded(same))
        if is_dataclass(value) and not isinstance(value, type):
            return self.call(value)
        return value

    def call(self, value: object) -> ConstructorCall:
        """Return the constructor call of a dataclass without fields that have their default or repeat another field."""
        kind: type = type(value)
        defaults = _defaults(kind)
        items = [(name, getattr(value, name)) for name in defaults]
        left_out = {name for name, item in items if item == defaults[name] or item == _repeated_field(value, name)}
        bare = [n for n, _ in items[: BARE.get(kind, 0)]]
        bare = bare[: next((at for at, name in enumerate(bare) if name in left_out), len(bare))]
        shown = {name: self._field(kind, name, item) for name, item in items if name not in left_out}
        named = tuple(
            sorted(((n, item) for n, item in shown.items() if n not in bare), key=lambda both: both[0] in LAST)
        )
        return ConstructorCall(kind.__name__, tuple(shown[name] for name in bare), named)

    def _field(self, kind: type, name: str, value: object) -> Value:
        names = self.fields.get((kind, name))
        return NameRef(names[value]) if names and value in names else self.shown(value)

    def folded(self, same: Sequence[object]) -> Iterable[Value]:
        """Write consecutive values that differ in little once for all of them if they are many."""
        if len(same) < MANY_ALIKE or not isinstance(same[0], Group | GroupPair | Planes | Read):
            return map(self.shown, same)
        call = self.call(same[0])
        if isinstance(same[0], Group | GroupPair):
            names = tuple(value.name for value in same if isinstance(value, Group | GroupPair))
            return [ForEach(replace(call, args=(NameRef("name"), *call.args[1:])), "name", names)]
        rows = rows_of(same)
        return [_with_variables(call, same[0], rows, self.rows[rows])]


@cache
def _defaults(kind: type) -> Mapping[str, object]:
    """Return the default of every field of a dataclass, in their order."""
    return {field.name: field.default for field in fields(kind)}


def _repeated_field(value: object, name: str) -> object:
    """Return the field that the field `name` may repeat; MISSING, which equals nothing, if there is none."""
    other = ALIKE.get((type(value), name))
    return getattr(value, other) if other else MISSING


def _runs(values: Iterable[object]) -> Iterator[list[object]]:
    """Yield consecutive values, those together that can be folded."""
    return (list(same) for _, same in groupby(values, key=_without_group))


def _without_group(value: object) -> object:
    """Return a value without the fields that distinguish groups: names, layers, and the start of their planes."""
    if isinstance(value, Group):
        return _fields_except(Group, "name")(value)
    if isinstance(value, GroupPair) and value.name == value.prefill == value.decode:
        return _fields_except(GroupPair, "name", "prefill", "decode")(value)
    if isinstance(value, Read):
        return _fields_except(Read, "groups", "layers", "first")(value), len(value.layers)
    if isinstance(value, Planes) and [axis for axis, _, _ in value.loops] == ["layer"]:
        ((_, layers, step),) = value.loops
        return _fields_except(Planes, "group", "first", "loops")(value), len(layers), step
    return value


@cache
def _fields_except(kind: type, *names: str) -> attrgetter[tuple[object, ...]]:
    """Return a getter of all fields of a dataclass but these."""
    return attrgetter(*(name for name in _defaults(kind) if name not in names))


def rows_of(same: Sequence[object]) -> Rows:
    """Return (groups, layers, first plane) of values that differ only in these; two planes if the sides differ."""
    found: list[tuple[str, tuple[int, ...], object]] = []
    for value in same:
        if isinstance(value, Read):
            found.append((value.groups, value.layers, value.first))
        elif isinstance(value, Planes):
            found.append((value.group, value.loops[0][1], (value.first, value.first)))
    if all(isinstance(first, tuple) and first[0] == first[1] for _, _, first in found):
        found = [(name, layers, first[0]) for name, layers, first in found if isinstance(first, tuple)]
    return tuple(found)


def _with_variables(call: ConstructorCall, value: object, rows: Rows, name: str) -> ForEach:
    """Return the call of a read, or of planes, with variables for the differences, for each of `rows`."""
    both = any(isinstance(first, tuple) for _, _, first in rows)
    given = {key: item for key, item in call.kwargs if key != "first"}
    if isinstance(value, Read):
        first: Value = NameRef("first") if both else (NameRef("plane"), NameRef("plane"))
        given |= {"groups": NameRef("name"), "layers": NameRef("layers"), "first": first}
        args = call.args
    else:
        assert isinstance(value, Planes)
        ((axis, _, step),) = value.loops
        given = {"first": NameRef("plane"), **given, "loops": ((axis, NameRef("layers"), step),)}
        args = (value.cache, NameRef("name"))
    words = f"name, layers, {'first' if both else 'plane'}"
    return ForEach(replace(call, args=args, kwargs=tuple(given.items())), words, NameRef(name))


def numbers(value: tuple[object, ...]) -> Value:
    """Return a tuple of numbers, as `tuple(range(...))` if it has four or more, rising at equal distances."""
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
    """Return the names of all values that a plan writes once."""
    grouped, workers = _rows(plan), of_workers(plan)
    sorts = (
        (_lists(plan, grouped), "LIST"), (grouped, "ROWS"), (of_readers(plan), "READS"), (_loops(plan), "LOOPS"),
        (_views(plan), "VIEWS"), (of_tables(plan), "TABLE"),
    )  # fmt: skip
    ints, rows, readers, loops, views, tables = across(workers, sorts)
    of_fields: dict[tuple[type, str], Names] = {
        (Nest, "loops"): loops,
        (Planes, "views"): views,
        (Worker, "planes"): workers,
        (Read, "table"): tables,
    }
    return Constants(of_fields, ints, readers, rows)


def _rows(plan: Plan) -> Names:
    """Name the groups that are written together by their cache: `DECODE_FULL_GROUPS` of one side's planes,
    `FULL_GROUP_PAIRS` of reads, `FULL_GROUPS` of both."""
    users: dict[Rows, dict[str, str]] = {}
    sides = (("PREFILL", plan.prefill), ("DECODE", plan.decode))
    lists = [(word, worker.planes) for word, side in sides for worker in side.workers]
    for word, value in dict.fromkeys([*lists, *(("GROUP_PAIRS", reads) for reads in plan.reads)]):
        for same in _runs(value):
            if len(same) >= MANY_ALIKE and isinstance(same[0], Planes | Read):
                users.setdefault(rows_of(same), {})[word] = constant(same[0].cache)
    names: Names = {rows: _rows_name(words) for rows, words in users.items()}
    return apart(names, lambda rows: f"{names[rows]}_OF_{_layers_of(rows)}_LAYERS")


def _rows_name(words: Mapping[str, str]) -> str:
    (word, stem), *more = words.items()
    return f"{stem}_GROUPS" if more else f"{stem}_GROUP_PAIRS" if word == "GROUP_PAIRS" else f"{word}_{stem}_GROUPS"


def _layers_of(rows: object) -> int:
    assert isinstance(rows, tuple)
    return len(rows[0][1])


def _views(plan: Plan) -> Names:
    """Name the views that several entries have."""
    users = Counter[object](e.views for e in {entry for side in (plan.prefill, plan.decode) for entry in planes(side)})
    names = of_sides(plan, lambda side: ((constant(entry.cache), entry.views) for entry in planes(side)), "VIEWS")
    return {views: name for views, name in names.items() if users[views] > 1}


def _lists(plan: Plan, rows: Names) -> Names:
    """Name the lists of numbers that are too long to repeat by their groups, except those in rows of groups."""
    names, in_rows = Names(), {row[1] for table in rows if isinstance(table, tuple) for row in table}
    for entry in (entry for side in (plan.decode, plan.prefill) for entry in planes(side)):
        for axis, indices in [*((axis, n) for axis, n, _ in entry.loops), ("layer", entry.layers)]:
            if _long(indices):
                names.setdefault(indices, f"{constant(axis)}S_OF_{constant(entry.group)}")
    for read in (read for worker in plan.reads for read in worker):
        if _long(read.layers):
            names.setdefault(read.layers, f"LAYERS_OF_{constant(read.groups)}")
    return apart({value: name for value, name in names.items() if value not in in_rows})


def _loops(plan: Plan) -> Names:
    """Name the loops of nests by what they repeat, with their cache if that is not enough."""
    caches: dict[object, str] = {}
    names = Names()
    for read in (read for worker in plan.reads for read in worker):
        for loops in (nest.loops for nest in (*read.table.per_page, *read.table.per_token) if nest.loops):
            caches.setdefault(loops, constant(read.cache))
            names[loops] = _each(loops)
    return apart(names, lambda loops: f"{caches[loops]}_{names[loops]}")


def _each(loops: tuple[Loop, ...]) -> str:
    return "_".join(["EACH", *(f"{loop.count}_{constant(loop.axis)}S" for loop in loops)])


def _long(indices: tuple[int, ...]) -> bool:
    return numbers(indices) is indices and len(flat(indices)) > LONG_LIST
