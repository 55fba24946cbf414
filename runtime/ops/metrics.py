"""Metrics of the runtime: plain numbers behind one lock, with fixed names, fixed labels and fixed buckets.

A peer can increase a number, but never add one: a label value that is not in its list counts as `other`. One `Counters`
may serve all workers of a process.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import auto
from threading import Lock

from kvplan.runtime import errors
from kvplan.runtime.machine import TextEnum

OTHER = "other"
LONGEST = 1e9
UNITS = ("bytes", "seconds")
# Seconds, from 100 µs to 100 s, three to a decade.
BUCKETS = (*(float(f"{step}e{power}") for power in range(-4, 2) for step in (1, 2.5, 5)), 100.0)


class MessageKind(TextEnum):
    """The kind of a handled message of a peer. The kinds from DUPLICATE on were unexpected and move no bytes."""

    ANSWERED = auto()
    BUFFER_ASKED = auto()
    BUFFER_RETURNED = auto()
    CLAIM = auto()
    CONFIRMED = auto()
    COUNTED = auto()
    DONE = auto()
    FAILED = auto()
    LEFT = auto()
    LENT = auto()
    OFFERED = auto()
    STOPPED = auto()
    WANTED = auto()
    WRITTEN = auto()
    DUPLICATE = auto()
    LATE = auto()
    MALFORMED = auto()
    STALE = auto()
    STRANGER = auto()
    STRAY = auto()
    UNEXPECTED = auto()
    UNKNOWN = auto()
    UNLIKE = auto()


Read = Callable[[], float]
Number = int | float
Value = Number | None | dict[str, int] | dict[str, Number | dict[str, int]]


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: a name by Prometheus' conventions, its help, and at most one label with all its values.

    A name ends in its unit, which is a base unit. The exporter adds the prefix `kvplan_` and a counter's `_total`.
    """

    name: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        return next((unit for unit in UNITS if self.name.endswith(f"_{unit}")), "")


COUNTERS = (
    Metric("requests", "Requests that ended, by outcome.", "outcome", ("cancelled", "done", "failed", "timed_out")),
    Metric("moved_bytes", "Bytes moved by what this process posted, in bytes.", "direction", ("read", "write")),
    Metric("staged_bytes", "Bytes that went by way of a stage, in bytes.", "direction", ("read", "write")),
    Metric("posts", "Descriptors posted by the transport, after merging."),
    Metric("spans", "Contiguous spans to move, before merging."),
    Metric(
        "failures",
        "Requests and handshakes that failed, by error code: see kvplan explain CODE.",
        "reason",
        tuple(sorted(errors.BY_CODE)),
    ),
    Metric(
        "ended_holds",
        "Holds whose blocks were freed: read or not needed any more, expired, or withdrawn by prefill.",
        "why",
        ("expired", "finished", "withdrawn"),
    ),
    Metric("messages", "Messages from peers, by what they were taken for.", "kind", tuple(MessageKind)),
)
HISTOGRAMS = (
    Metric("transfer_duration_seconds", "Time from the submission of a request until it is done, in seconds."),
    Metric("handshake_duration_seconds", "Time to meet a peer, in seconds."),
)
GAUGES = (
    Metric("holds", "Requests that prefill holds, or released() has not returned; at most Limits.requests."),
    Metric("quarantined_bytes", "Bytes of blocks that a failed transfer may still write, in bytes."),
    Metric("in_flight_bytes", "Bytes posted and not yet arrived, in bytes."),
    Metric("peers", "Peers connected now."),
    Metric("unready_workers", "Workers that should get no requests now; /readyz says why."),
)


class Counters:
    """Counters, histograms and gauges of the names above. Several threads may call it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counters = {m.name: dict.fromkeys((*m.values, OTHER) if m.label else ("",), 0) for m in COUNTERS}
        self._buckets = {m.name: [0] * (len(BUCKETS) + 1) for m in HISTOGRAMS}
        self._sums = {m.name: 0.0 for m in HISTOGRAMS}
        self._gauges: dict[str, list[Read]] = {m.name: [] for m in GAUGES}

    def add(self, name: str, amount: int = 1, **labels: str) -> None:
        """Add `amount`, at least 0, to counter `name`, with its label if it has one."""
        (value,) = labels.values() or ("",)
        with self._lock:
            counts = self._counters[name]
            counts[value if value in counts else OTHER] += amount

    def add_messages(self, kinds: Mapping[MessageKind, int]) -> None:
        """Add numbers of messages by kind."""
        with self._lock:
            for kind, count in kinds.items():
                self._counters["messages"][kind] += count

    def observe(self, name: str, seconds: float) -> None:
        """Add a duration to histogram `name`. A negative one counts as 0, one above LONGEST as LONGEST."""
        seconds = min(max(0.0, seconds), LONGEST)
        with self._lock:
            self._buckets[name][bisect_left(BUCKETS, seconds)] += 1
            self._sums[name] += seconds

    def gauge(self, name: str, read: Read) -> Callable[[], None]:
        """Add `read` to gauge `name`, whose value is the sum of its readers. Return a call that removes it again."""
        with self._lock:
            self._gauges[name].append(read)
        return lambda: self._forget(name, read)

    def _forget(self, name: str, read: Read) -> None:
        with self._lock:
            self._gauges[name] = [one for one in self._gauges[name] if one is not read]

    def snapshot(self) -> dict[str, Value]:
        """Return every number by name, in the order of this module, always of the same shape. JSON can hold it.

        A counter is a number, or numbers by label value. A histogram is count, sum in seconds, and cumulative buckets
        by upper bound. A gauge is None if it cannot be read. `merge_ratio` is spans / posts.
        """
        with self._lock:
            counters = {name: dict(counts) for name, counts in self._counters.items()}
            histograms = {name: _histogram(counts, self._sums[name]) for name, counts in self._buckets.items()}
            gauges = {name: tuple(reads) for name, reads in self._gauges.items()}
        spans, posts = (counters[name][""] for name in ("spans", "posts"))
        # Gauges are read outside the lock, because they may wait for a worker that needs the lock to count.
        return {
            **{name: counts.get("", counts) for name, counts in counters.items()},
            "merge_ratio": spans / posts if posts else None,
            **histograms,
            **{name: _total(reads) for name, reads in gauges.items()},
        }


def _histogram(counts: list[int], total: float) -> dict[str, Number | dict[str, int]]:
    running, buckets = 0, {}
    for end, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
        running += count
        buckets[end] = running
    return {"count": running, "sum": total, "buckets": buckets}


def _total(reads: tuple[Read, ...]) -> Number | None:
    try:
        return sum(read() for read in reads)
    except errors.EXITS:
        raise
    except BaseException:
        # A worker may be closing. The other metrics must still be returned.
        return None
