"""Damage to the reads of a plan: each to the damaged plan, or None where there is nothing to damage so."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kvplan.plan.types import Nest, Plan, Read, Table

Damage = Callable[[Plan], Plan | None]


def victim(plan: Plan) -> tuple[int, int]:
    """The decode worker and the number of the read that are damaged: the last one with most nests."""
    every = [(w, i) for w, reads in enumerate(plan.reads) for i in range(len(reads))]
    return max(every, key=lambda at: (len(_nests(plan.reads[at[0]][at[1]])), at))


def _nests(read: Read) -> tuple[Nest, ...]:
    return read.table.per_page + read.table.per_token


def with_read(plan: Plan, at: tuple[int, int], *instead: Read) -> Plan:
    """The plan with one read replaced by others, or by none."""
    worker, number = at
    reads = plan.reads[worker]
    mine = (*reads[:number], *instead, *reads[number + 1 :])
    return replace(plan, reads=(*plan.reads[:worker], mine, *plan.reads[worker + 1 :]))


def changed(plan: Plan, **fields: object) -> Plan | None:
    """The plan with fields of its damaged read replaced, None if they are what they were."""
    at = victim(plan)
    read = plan.reads[at[0]][at[1]]
    other = replace(read, **fields)  # type: ignore[arg-type]
    return None if other == read else with_read(plan, at, other)


def _other_worker(plan: Plan) -> Plan | None:
    """The first other worker that holds something else of what is read."""
    worker, number = victim(plan)
    read = plan.reads[worker][number]
    mine = plan.prefill.workers[read.worker]
    for other, there in enumerate(plan.prefill.workers):
        if (there.holds, there.shard) != (mine.holds, mine.shard):
            return changed(plan, worker=other)
    return None


def _uneven(plan: Plan) -> Plan | None:
    """Every reader of an interval takes it from the first one that is read: None where no two hold it."""
    alike: dict[object, int] = {}
    for reads in plan.reads:
        for read in reads:
            worker = plan.prefill.workers[read.worker]
            alike.setdefault((read.groups, read.layers, worker.holds, worker.shard, read.first[0]), read.worker)

    def told(read: Read) -> Read:
        worker = plan.prefill.workers[read.worker]
        return replace(read, worker=alike[read.groups, read.layers, worker.holds, worker.shard, read.first[0]])

    every = tuple(tuple(told(read) for read in reads) for reads in plan.reads)
    return None if every == plan.reads else replace(plan, reads=every)


def _tables_swapped(plan: Plan) -> Plan | None:
    """Two reads of one decode worker exchange their tables."""
    for worker, reads in enumerate(plan.reads):
        for i, one in enumerate(reads):
            for j, other in enumerate(reads[:i]):
                if one.table != other.table and one.groups == other.groups:
                    plan = with_read(plan, (worker, i), replace(one, table=other.table))
                    return with_read(plan, (worker, j), replace(other, table=one.table))
    return None


def _neighbours_reads(plan: Plan) -> Plan | None:
    """Two decode workers exchange all they read."""
    last = plan.reads[-1]
    other = next((i for i, reads in enumerate(plan.reads) if _meant(reads) != _meant(last)), None)
    if other is None:
        return None
    reads = list(plan.reads)
    reads[other], reads[-1] = reads[-1], reads[other]
    return replace(plan, reads=tuple(reads))


def _meant(reads: Iterable[Read]) -> list[object]:
    return [(read.cache, read.layers, read.holds, read.table) for read in reads]


def _read(plan: Plan) -> tuple[tuple[int, int], Read]:
    at = victim(plan)
    return at, plan.reads[at[0]][at[1]]


def _doubled(plan: Plan) -> Plan:
    at, read = _read(plan)
    return with_read(plan, at, read, read)


def _idle(plan: Plan) -> Plan:
    """A read that moves nothing beside the one that does."""
    at, read = _read(plan)
    return with_read(plan, at, read, replace(read, layers=(), holds=(), table=Table()))


def _other_holds(plan: Plan) -> Plan | None:
    read = _read(plan)[1]
    return changed(plan, holds=tuple((axis, (a, b + 1)) for axis, (a, b) in read.holds))


def _other_first(side: int) -> Damage:
    def over(plan: Plan) -> Plan | None:
        read = _read(plan)[1]
        return changed(plan, first=tuple(n + (i == side) for i, n in enumerate(read.first)))

    return over


def _other_offset(side: int, part: int) -> Damage:
    """The bytes of a span (1), or one byte (0), further on a side."""

    def over(plan: Plan) -> Plan | None:
        read = _read(plan)[1]
        far = max((nest.bytes for nest in _nests(read)), default=1) if part else 1
        return changed(plan, offset=tuple(n + far * (i == side) for i, n in enumerate(read.offset)))

    return over


def _offsets_swapped(plan: Plan) -> Plan | None:
    """Two reads of one table take each other's bytes."""
    for worker, reads in enumerate(plan.reads):
        for i, one in enumerate(reads):
            for j, other in enumerate(reads[i + 1 :], i + 1):
                if one.offset != other.offset and one.table == other.table and one.groups == other.groups:
                    plan = with_read(plan, (worker, i), replace(one, offset=other.offset))
                    return with_read(plan, (worker, j), replace(other, offset=one.offset))
    return None


def _table(name: str) -> Damage:
    """One of a read's two tables dropped."""

    def over(plan: Plan) -> Plan | None:
        return changed(plan, table=replace(_read(plan)[1].table, **{name: ()}))

    return over


def _untold(plan: Plan) -> Plan | None:
    return None if not any(plan.notify) else replace(plan, notify=((),) * len(plan.notify))


def _told_by(plan: Plan) -> Plan:
    """A worker that is read is told once more."""
    return replace(plan, notify=(*plan.notify[:-1], tuple(sorted((*plan.notify[-1], _read(plan)[1].worker)))))


READS: dict[str, Damage] = {
    "drop a read": lambda plan: with_read(plan, _read(plan)[0]),
    "a read twice": _doubled,
    "a read of nothing": _idle,
    "a worker without the interval": _other_worker,
    "a worker that is not there": lambda plan: changed(plan, worker=len(plan.prefill.workers)),
    "all from one holder": _uneven,
    "tables swapped": _tables_swapped,
    "the reads of another worker": _neighbours_reads,
    "an empty table": lambda plan: changed(plan, table=Table()),
    "no pages": _table("per_page"),
    "no tokens": _table("per_token"),
    "other intervals": _other_holds,
    "a layer too few said": lambda plan: changed(plan, layers=_read(plan)[1].layers[:-1]),
    "a layer too many said": lambda plan: changed(plan, layers=(*_read(plan)[1].layers, 99)),
    "from other planes": _other_first(0),
    "into other planes": _other_first(1),
    "from a byte further": _other_offset(0, 0),
    "into a byte further": _other_offset(1, 0),
    "from the next span": _other_offset(0, 1),
    "into the next span": _other_offset(1, 1),
    "bytes swapped": _offsets_swapped,
    "another cache": lambda plan: changed(plan, cache="nobody"),
    "another pair": lambda plan: changed(plan, groups="nobody"),
    "nobody told": _untold,
    "told twice": _told_by,
}
