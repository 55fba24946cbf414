"""Inspection: what one worker has between two of its steps, as values, for people who debug an engine and for tests.

`worker.inspect()` makes it. Nothing in it changes later, and nothing in the runtime reads it. Times are seconds:
compare them with `now` of the same inspection. docs/runtime.md has an example.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageState:
    """The stage of a worker: `buffer_bytes` per buffer. It is `open` once its memory is registered.

    `free` are addresses of buffers. `lent` are addresses, each with the peer whose bytes the buffer carries. `kept`
    counts, by peer, the lent buffers of requests that have ended: the peer may still read or write them. `waiting` are
    the peers for which a buffer is wanted, the longest wait first. `copies` wait for a thread.
    """

    buffer_bytes: int
    open: bool
    free: tuple[int, ...]
    lent: tuple[tuple[int, str], ...]
    kept: tuple[tuple[str, int], ...]
    waiting: tuple[str, ...]
    copies: int


@dataclass(frozen=True, slots=True)
class PeerStageState:
    """The stage of a `peer`, as the worker that moves bytes through it knows it.

    The pieces for which it `asked` have not been given back. `ready` counts those of them that have a buffer, `kept`
    the buffers of slices that were given up. `waiting` pieces are asked for later. The peer `lends` if it said so last.
    """

    peer: str
    asked: int
    ready: int
    kept: int
    waiting: int
    lends: bool


@dataclass(frozen=True, slots=True)
class SliceState:
    """A slice of a request. `stage` is what it waits for: its turn (limited), a buffer (staged), the wire (posted)."""

    request: str
    stage: str


@dataclass(frozen=True, slots=True)
class PartState:
    """How far a request is with one prefill `worker`. docs/runtime.md has the drawing of the phases.

    `pin` is the number of the hold, None until the worker confirms it. `moved_bytes` have arrived. `writes` says that
    the worker was asked to write, and has not stopped. `reads` are slices of a failed request that may still move.
    """

    worker: int
    phase: str
    pin: int | None
    moved_bytes: int
    writes: bool
    reads: int


@dataclass(frozen=True, slots=True)
class RequestState:
    """A request of decode, and its part for each prefill worker of the plan. It ends at its `deadline`, or before."""

    request: str
    engine: str
    deadline: float
    parts: tuple[PartState, ...]


@dataclass(frozen=True, slots=True)
class PrefillEngineState:
    """A prefill engine that a decode worker has met, and the transport's names of its workers.

    `status` is connected, replanned (its older requests end by an older plan) or retired (dropped, and something may
    still be in progress from it). `mode` is pull or push.
    """

    name: str
    run: str
    plan: str
    mode: str
    status: str
    peers: frozenset[str]


@dataclass(frozen=True, slots=True)
class HoldState:
    """A request whose blocks a prefill worker keeps, by the number of its `pin`.

    `phase` is held, withdrawn (no claims are taken) or over (its blocks are still being written to somebody). They are
    kept until `until` while it is held and no run of a decode engine has read all of it, and otherwise until the last
    of the `promises` ends: number and run of a decode worker, and the end. `writers` are writes that read them.
    """

    request: str
    pin: int
    phase: str
    until: float
    promises: tuple[tuple[int, str, float], ...]
    writers: int


@dataclass(frozen=True, slots=True)
class SourceState:
    """What can be read of a held request: it is `whole`, or `computed` of the `chunks` that were offered so far."""

    request: str
    pin: int
    whole: bool
    chunks: int
    computed: int


@dataclass(frozen=True, slots=True)
class WriteState:
    """A request that prefill writes to a decode worker, named by its reader. `phase` is writing, ended or buried.

    One that has ended may still have writes in progress. A buried one has them to an engine that was dropped as dead.
    """

    request: str
    reader: str
    phase: str
    under_way: bool


@dataclass(frozen=True, slots=True)
class ReaderState:
    """A connection of a decode worker to a prefill worker: who it is, and the requests that it claims.

    `peer` is its name in the transport, None if it reads by itself. It was last `heard` at that time.
    """

    key: str
    engine: str
    run: str
    worker: int
    plan: str
    peer: str | None
    heard: float
    claims: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """A connection with one worker of another engine, `made_here` or by that worker.

    With `asks`, the decode half here asks that worker's prefill half over it; with `answers`, the prefill half here
    answers that worker's decode half.
    """

    engine: str
    run: str
    worker: int
    made_here: bool
    asks: bool
    answers: bool


@dataclass(frozen=True, slots=True)
class Inspection:
    """All that a worker has. What only the other role has is empty.

    `transport` is the worker's own name there, `peers` are those that the transport knows, `met` those that the worker
    has it forget in the end. `connections` with peers are those of both halves, if the worker prefills. `checksums` are
    being computed or wait for that. `peer_stages` are those of peers through which the worker moves bytes.

    Decode: `requests` are in progress. `failed` ones have blocks in quarantine. `ended` ones have ended, and their
    callbacks were not called yet. `written` and `quarantined` are blocks as (arena, number).

    Prefill: `unannounced` requests wait for their events, or their readers are still to be told of them. `packs` are
    pieces that decode workers asked to have packed. `uncollected` requests are released, and
    `released()` has not returned them.
    """

    name: str
    now: float
    transport: str
    peers: frozenset[str]
    met: frozenset[str]
    stage: StageState
    connections: tuple[ConnectionState, ...]
    bytes_in_flight: int = 0
    slices: tuple[SliceState, ...] = ()
    checksums: int = 0
    engines: tuple[PrefillEngineState, ...] = ()
    requests: tuple[RequestState, ...] = ()
    failed: tuple[RequestState, ...] = ()
    ended: tuple[str, ...] = ()
    written: frozenset[tuple[int, int]] = frozenset()
    quarantined: frozenset[tuple[int, int]] = frozenset()
    readers: tuple[ReaderState, ...] = ()
    holds: tuple[HoldState, ...] = ()
    sources: tuple[SourceState, ...] = ()
    unannounced: tuple[str, ...] = ()
    writes: tuple[WriteState, ...] = ()
    packs: int = 0
    uncollected: tuple[str, ...] = ()
    peer_stages: tuple[PeerStageState, ...] = ()
