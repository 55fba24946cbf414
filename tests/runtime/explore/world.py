"""Two protocol cores, the line between them and the memory of both: a state that is copied, and all that may happen.

A prefill worker holds requests, some of them by a name that was held before in other blocks. A decode worker asks for
each when it is told of its blocks. Blocks have the number of their hold as their content, and are overwritten as soon
as they are released.
If a line breaks, decode asks once more for what it had failed, and prefill may hear the last words of that line late.
The laws: a request that is done has the content of the hold that decode was told of; nothing is copied to blocks that
belong to nobody, or to somebody else; nothing that is still being read is released; what is claimed is kept unless time
passes, prefill gives it up or ends; nothing raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec

import numpy as np
from tests.runtime.helpers.plans import Model, Shape, plan

from kvplan.plan.request import Request
from kvplan.plan.types import Blocks, Plan, Runs
from kvplan.runtime import errors
from kvplan.runtime.protocol import effects
from kvplan.runtime.protocol.decode import DecodeCore
from kvplan.runtime.protocol.effects import Output, Send
from kvplan.runtime.protocol.holds import Claimant
from kvplan.runtime.protocol.load_table import write_request
from kvplan.runtime.protocol.loads import KnownEngine, Load, PrefillPeer
from kvplan.runtime.protocol.prefill import PrefillCore
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.transfer.chunks import Chunk
from kvplan.runtime.transfer.demand import PairRules

P = ParamSpec("P")
MODEL = Model(heads=1, layers=(3,), state=False)
END, PAGE, LEASE, TIMEOUT = 8, 4, 6.0, 30.0
POOL = {"kv": 20}
CHUNKS = ((0, PAGE), (PAGE, END))
GARBAGE = -1
BROKEN = errors.PeerLostError("the line is broken")
# Rounds of two seconds after which everything has ended, and steps after which one of them has.
ROUNDS, MOST_STEPS = 50, 200


class BrokenLawError(AssertionError):
    """Something happened that the protocol promises not to let happen."""


def tables(first: int) -> dict[str, Blocks]:
    """The two blocks of a request from `first` on."""
    return {"kv": Blocks(0, np.array([first, first + 1], np.int64))}


@dataclass(frozen=True, eq=False)
class Fixed:
    """The constants of a world: the plan, the side that moves the bytes, and whether requests come in chunks.

    `names` are those of the holds, in the order in which prefill makes them.
    """

    names: tuple[str, ...]
    plan: Plan
    push: bool
    chunked: bool
    pair: PairRules

    @classmethod
    def of(cls, push: bool, chunked: bool, names: tuple[str, ...] = ("a", "a")) -> Fixed:
        made = plan(Shape(1), Shape(1), MODEL)
        return cls(names, made, push, chunked, PairRules.of(made, 0, POOL, POOL))


@dataclass(slots=True)
class Copying:
    """Bytes on their way for one part of a load or one write: each piece has runs, `last` says that no more come."""

    whose: Any
    pieces: list[Mapping[str, Runs]] = field(default_factory=list)
    last: bool = False
    stopped: bool = False


@dataclass(slots=True)
class Line:
    """A connection: its messages either way. `seen` says that decode knows that it is broken."""

    number: int
    up: list[Any] = field(default_factory=list)
    down: list[Any] = field(default_factory=list)
    broken: bool = False
    seen: bool = False


@dataclass(slots=True)
class World:
    """The state. Each kind of trouble may still happen as often as `left` says, and all of them `most` times."""

    fixed: Fixed
    left: dict[str, int]
    most: int
    decode: DecodeCore
    prefill: PrefillCore
    now: float = 0.0
    line: Line = field(default_factory=lambda: Line(0))
    # Messages that prefill may still hear over broken lines, in order, with their senders.
    late: list[tuple[Reader, Any]] = field(default_factory=list)
    # How often each kind of trouble could happen at the start.
    most_each: int = 0
    engine: KnownEngine | None = None
    reader: Reader | None = None
    run: int = 0
    memory: dict[int, int] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)
    reads: list[Copying] = field(default_factory=list)
    writes: list[Copying] = field(default_factory=list)
    # The number of holds so far, and the holds that decode knows.
    made: int = 0
    holds: list[int] = field(default_factory=list)
    offered: dict[int, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    told: list[int] = field(default_factory=list)

    @classmethod
    def new(cls, fixed: Fixed, left: Mapping[str, int], most: int) -> World:
        world = cls(fixed, dict(left), most, _decode_core(fixed), _prefill_core())
        world.most_each = max(left.values())
        world.meet()
        return world

    @property
    def _name_of_run(self) -> str:
        return f"run {self.run}"

    # The possible steps, by name

    def steps(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """All that may happen now."""
        yield from self.calm()
        yield from self.troubles()

    def calm(self) -> Iterator[tuple[str, Callable[[], None]]]:
        """The steps that are no troubles."""
        yield from self._callers()
        yield from self._wires()

    def _callers(self) -> Iterator[tuple[str, Callable[[], None]]]:
        number = self.made
        if number < len(self.fixed.names) and self.fixed.names[number] not in self.held:
            yield f"hold {number}", lambda: self.hold(number)
        for name, hold in self.held.items():
            # A write may keep the blocks of a request that has ended.
            is_open = self.fixed.chunked and name in self.prefill.state.sources
            if is_open and self.offered.get(hold, 0) < len(CHUNKS):
                yield f"offer {hold}", lambda hold=hold: self.offer(hold)  # type: ignore[misc]
        if (asked := self._next_ask()) is not None:
            yield f"ask {asked}", lambda: self.ask(asked)

    def _wires(self) -> Iterator[tuple[str, Callable[[], None]]]:
        if self.line.up and not self.line.broken:
            yield "prefill hears", self.prefill_hears
        if self.line.down and not self.line.broken:
            yield "decode hears", self.decode_hears
        if self.late:
            yield "prefill hears late", self.prefill_hears_late
        for number, copying in enumerate(self.reads):
            if copying.pieces:
                yield f"read {number}", lambda number=number: self.read(number)  # type: ignore[misc]
        for number, copying in enumerate(self.writes):
            if copying.pieces:
                yield f"write {number}", lambda number=number: self.write(number)  # type: ignore[misc]

    def troubles(self) -> Iterator[tuple[str, Callable[[], None]]]:
        if self.line.broken and not self.line.seen:
            yield "decode sees that the line is broken", self.see
        if self.line.seen:
            yield "meet", self.meet
        for kind, step in (
            ("time", self.pass_time),
            ("lose", self.lose),
            ("restart prefill", self.restart_prefill),
            ("restart decode", self.restart_decode),
        ):
            if self._may(kind) and not (kind == "lose" and self.line.broken):
                yield kind, lambda kind=kind, step=step: self._spend(kind, step)  # type: ignore[misc]
        for number, load in enumerate(self.loads):
            if self._may("cancel") and not load.ended:
                yield f"cancel {number}", lambda load=load: self._spend("cancel", lambda: self.cancel(load))  # type: ignore[misc]
        for hold in list(self.held.values()):
            if self._may("withdraw"):
                yield f"withdraw {hold}", lambda hold=hold: self._spend("withdraw", lambda: self.withdraw(hold))  # type: ignore[misc]
        for number, copying in enumerate(self.reads):
            if self._may("fail") and copying.pieces and not copying.stopped:
                yield f"fail {number}", lambda number=number: self._spend("fail", lambda: self.fail(number))  # type: ignore[misc]

    def _may(self, kind: str) -> bool:
        return self.most > 0 and self.left.get(kind, 0) > 0

    @property
    def _happened(self) -> set[str]:
        return {kind for kind, left in self.left.items() if left < self.most_each}

    def _spend(self, kind: str, step: Callable[[], None]) -> None:
        self.left[kind] -= 1
        self.most -= 1
        step()

    # The callers

    def hold(self, number: int) -> None:
        """Prefill computes a request into blocks of its own, and keeps them."""
        name, blocks = self.fixed.names[number], tables(2 * number)
        self.memory |= dict.fromkeys(blocks["kv"].ids.tolist(), number)
        self.made += 1
        self.holds.append(number)
        self.held[name] = number
        if self.fixed.chunked:
            self.tell_prefill(self.prefill.hold, name, (0, END), None, ready=False)
        else:
            self.tell_prefill(self.prefill.hold, name, None, blocks, ready=True)
        self.round()

    def offer(self, hold: int) -> None:
        """One more chunk is computed."""
        count = self.offered[hold] = self.offered.get(hold, 0) + 1
        name, last = self.fixed.names[hold], count == len(CHUNKS)
        chunk = Chunk(CHUNKS[count - 1], last, None, tables(2 * hold))
        self.tell_prefill(self.prefill.offer, name, chunk)
        self.tell_prefill(self.prefill.computed, name, count)
        self.round()

    def _next_ask(self) -> int | None:
        """The number of the hold that decode asks for next.

        Decode asks for holds in order. It asks for a reused name once the earlier hold has ended, and once more for
        what failed because its line broke.
        """
        hold = next((hold for hold in self.holds if self._is_wanted(hold)), None)
        if self.engine is None or hold is None:
            return None
        names = [self.fixed.names[told] for told in self.told]
        before = [load for load, name in zip(self.loads, names, strict=True) if name == self.fixed.names[hold]]
        over = all(load.ended and not self.decode.loads.quarantine.keeps(load) for load in before)
        return hold if over else None

    def _is_wanted(self, hold: int) -> bool:
        loads = [load for load, told in zip(self.loads, self.told, strict=True) if told == hold]
        lost = len(loads) == 1 and isinstance(loads[0].error, errors.TransferError) and "lose" in self._happened
        return not loads or (lost and self.held.get(self.fixed.names[hold]) == hold)

    def ask(self, hold: int) -> None:
        """Decode asks for what a hold has, into blocks that it has for this hold alone."""
        prefill = {} if self.fixed.chunked else tables(2 * hold)
        request = Request(self.fixed.names[hold], (0, END), prefill, tables(10 + 2 * hold))
        load = Load(request, self.now + TIMEOUT, self.now, self.fixed.chunked)
        self.loads.append(load)
        self.told.append(hold)
        assert self.engine is not None
        self.tell_decode(self.decode.begin, load, self.engine, self.now)
        self.tick()

    def cancel(self, load: Load) -> None:
        self.tell_decode(self.decode.loads.fail, load, errors.CancelledTransferError("cancelled"))
        self.tick()

    def withdraw(self, hold: int) -> None:
        """Prefill gives a request up: nothing more of it is computed."""
        self.tell_prefill(self.prefill.withdraw, self.fixed.names[hold], errors.WithdrawnError("given up"))
        self.round()

    # The wires

    def prefill_hears(self) -> None:
        assert self.reader is not None
        self._hear(self.reader, self.line.up.pop(0))

    def prefill_hears_late(self) -> None:
        self._hear(*self.late.pop(0))

    def _hear(self, reader: Reader, message: Any) -> None:
        if reader in self.prefill.state.sessions:
            self.tell_prefill(self.prefill.inbox.hear, reader, message)
        else:
            self.tell_prefill(self.prefill.inbox.stranger, reader.identity, message)
        self.round()

    def decode_hears(self) -> None:
        message = self.line.down.pop(0)
        assert self.engine is not None
        self.tell_decode(self.decode.hear, self.engine, self.engine.peers[0], message, self.now)
        self.tick()

    def read(self, number: int) -> None:
        """Bytes of a read arrive, whatever prefill's blocks have now."""
        copying = self.reads[number]
        self._copy(copying.pieces.pop(0), copying.whose.request)
        self._arrived(copying)
        self.tick()

    def write(self, number: int) -> None:
        """Bytes of a write arrive, unless the process that it was for has ended."""
        copying = self.writes[number]
        if copying.whose.reader.claimant.run != self._name_of_run:
            self._fail_write(copying)
            self.round()
            return
        self._copy(copying.pieces.pop(0), copying.whose.request)
        self._written(copying)
        self.round()

    def _arrived(self, copying: Copying) -> None:
        if copying.pieces:
            return
        if copying.stopped:
            self.reads.remove(copying)
            self.tell_decode(self.decode.settled, copying.whose)
        elif copying.last:
            self.reads.remove(copying)
            self.tell_decode(self.decode.placed, copying.whose)

    def _written(self, copying: Copying) -> None:
        if copying.pieces:
            return
        if copying.stopped:
            self.writes.remove(copying)
            self.tell_prefill(self.prefill.writes.settled, copying.whose, lost=False)
        elif copying.last:
            self.writes.remove(copying)
            self.tell_prefill(self.prefill.writes.moved, copying.whose, 1)

    def _copy(self, runs: Mapping[str, Runs], request: str) -> None:
        """Copy blocks. The blocks of decode have to belong to this request."""
        (some,) = runs.values()
        allowed = {block for load in self._unfinished() if load.request.id == request for block in _blocks(load)}
        for source, target in zip(some.prefill_block.tolist(), some.decode_block.tolist(), strict=True):
            if target not in allowed:
                raise BrokenLawError(f"block {target} is written for {request}, to which it does not belong")
            self.copied[target] = self.memory.get(source, GARBAGE)

    def _unfinished(self) -> list[Load]:
        quarantine = self.decode.loads.quarantine
        return [load for load in self.loads if not load.ended or quarantine.keeps(load)]

    # Trouble

    def pass_time(self) -> None:
        """More than a lease goes by, without a word."""
        self.now += LEASE + 0.5
        self.tell_prefill(self.prefill.leases.end_due, self.now)
        self.round()
        self.tick()

    def lose(self) -> None:
        """Break the line. Messages to decode are lost, messages to prefill may come late."""
        self.late += [(self.reader, message) for message in self.line.up if self.reader is not None]
        self.line = Line(self.line.number, broken=True)

    def see(self) -> None:
        """Decode sees that the line is broken."""
        self.line.seen = True
        engine, self.engine = self.engine, None
        if engine is not None:
            self.tell_decode(self.decode.drop, engine, "the line is broken")
        self.tick()

    def meet(self) -> None:
        """Decode meets prefill, maybe once more."""
        self.line = Line(self.line.number + 1)
        fixed = self.fixed
        self.reader = Reader(
            bytes([self.line.number]),
            "decode",
            Claimant(self._name_of_run, "plan", 0, self.line.number),
            fixed.plan,
            frozenset({0}),
            fixed.pair if fixed.push else None,
        )
        readers = self.prefill.readers
        self.tell_prefill(readers.introduce, self.reader.identity, "decode", self.reader.claimant.run)
        self.tell_prefill(readers.meet, self.reader)
        peer = PrefillPeer(0, "p", 0, True, POOL, _size)
        self.engine = KnownEngine("prefill", fixed.push, fixed.pair, (peer,), self.now, self.now)
        self.tell_decode(self.decode.meet, self.engine, follow=True)
        self.tick()

    def fail(self, number: int) -> None:
        """A read fails; what was posted of it may still arrive."""
        copying = self.reads[number]
        self.tell_decode(self.decode.loads.broken, copying.whose, errors.TransportError("it failed"))
        self.tick()

    def restart_prefill(self) -> None:
        """Prefill's process ends. Another one has memory of its own, with nothing in it."""
        self.lose()
        # Its holds have other numbers than those of the processes before.
        self.prefill, self.memory, self.held, self.offered = _prefill_core(1000 * (1 + self.most)), {}, {}, {}
        # Nobody reads it any more, and it writes no more.
        self.writes.clear()
        self.late.clear()
        for copying in list(self.reads):
            copying.pieces.clear()
            gone = errors.PeerLostError("prefill has ended")
            if not copying.stopped:
                self.tell_decode(self.decode.loads.broken, copying.whose, gone)
            if copying in self.reads:
                self._arrived(copying)
        if self.engine is not None:
            self.tell_decode(self.decode.loads.quarantine.gone, self.engine.peers)

    def restart_decode(self) -> None:
        """Decode's process ends, with its memory. Another one takes its place."""
        self.lose()
        self.line.seen, self.engine = True, None
        self.run += 1
        self.decode, self.copied, self.loads, self.told = _decode_core(self.fixed), {}, [], []
        self.holds = list(self.held.values())
        self.reads.clear()

    def _fail_write(self, copying: Copying) -> None:
        """The process that is written to has ended."""
        copying.pieces.clear()
        if not copying.stopped:
            gone = errors.PeerLostError("decode has ended")
            self.tell_prefill(self.prefill.writes.broken, copying.whose, gone)
        if copying in self.writes:
            self.writes.remove(copying)
            self.tell_prefill(self.prefill.writes.settled, copying.whose, lost=True)

    # The end

    def finish(self) -> None:
        """Nothing more goes wrong, and time passes: everything ends, and every block is free again."""
        self.most = 0
        for _ in range(ROUNDS):
            for _ in range(MOST_STEPS):
                if (step := next(self.steps(), None)) is None:
                    break
                step[1]()
            else:
                raise BrokenLawError("it goes on for ever")
            self.now += 2.0
            self.tell_prefill(self.prefill.leases.end_due, self.now)
            self.round()
            self.tick()
        self.check_rest()

    def check_rest(self) -> None:
        """Check that nothing is left when all requests have ended."""
        loads, names = self.decode.loads, [load.request.id for load in self.loads if not load.ended]
        left = {
            "requests": names,
            "quarantine": loads.ledger.quarantined(),
            "blocks": loads.ledger.written(),
            "holds": sorted(self.held),
            "reads": self.reads,
            "writes": self.writes,
        }
        if any(left.values()):
            raise BrokenLawError(f"something is left: { {name: what for name, what in left.items() if what} }")

    # The drivers

    def round(self) -> None:
        """Run a round of prefill's driver."""
        self.tell_prefill(self.prefill.step, frozenset(), frozenset(), lends=True)

    def tick(self) -> None:
        """Run a round of decode's driver."""
        self.tell_decode(self.decode.tick, self.now)
        self.tell_decode(self.decode.sweep, self.now)

    def tell_decode(self, act: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        act(*arguments, **named)
        while outputs := self.decode.take():
            for output in outputs:
                self._decode_does(output)

    def tell_prefill(self, act: Callable[P, None], *arguments: P.args, **named: P.kwargs) -> None:
        self.prefill.at(self.now)
        act(*arguments, **named)
        while outputs := self.prefill.take():
            for output in outputs:
                self._prefill_does(output)

    def _decode_does(self, output: Output) -> None:
        match output:
            case Send():
                self._decode_says(output, known=self.engine is not None and output.peer in self.engine.peers)
            case effects.AskWrite():
                self._decode_says(Send(output.part.peer, write_request(output.load.request)), known=True)
            case effects.Move():
                copying = _of(self.reads, output.key)
                copying.pieces += [output.runs] if output.runs else []
                copying.last = output.last
                self._end_if_over(copying)
            case effects.Stop():
                copying = _of(self.reads, output.key)
                copying.stopped = True
                self._end_if_over(copying)
            case effects.Ended():
                self._check_ended(output.load)
            case effects.EngineLost() if self.engine is output.engine:
                self.line.broken = self.line.seen = True
                self.engine = None
                self.decode.drop(output.engine, str(output.error))

    def _end_if_over(self, copying: Copying) -> None:
        """A part of which nothing is on its way is over at once."""
        if not copying.pieces and (copying.last or copying.stopped):
            self.reads.remove(copying)
            (self.decode.settled if copying.stopped else self.decode.placed)(copying.whose)

    def _prefill_does(self, output: Output) -> None:
        match output:
            case Send():
                if not self._said(self.line.down, output, known=output.peer is self.reader):
                    self.prefill.readers.unsent(output.peer, output.message, BROKEN)
            case effects.Reply() if self.reader is not None and output.identity == self.reader.identity:
                self.line.down.append(output.message)
            case effects.Move():
                copying = _of(self.writes, output.key)
                copying.pieces += [output.runs] if output.runs else []
                copying.last = output.last
            case effects.Stop():
                copying = _of(self.writes, output.key)
                copying.stopped = True
                if not copying.pieces:
                    self.writes.remove(copying)
                    self.prefill.writes.settled(output.key, lost=False)
            case effects.Free():
                self._release(output.released.request)
                self.prefill.leases.collected([output.released.request])

    def _decode_says(self, send: Send, *, known: bool) -> None:
        if not self._said(self.line.up, send, known=known):
            self.decode.unsent(send.peer, send.message, BROKEN)

    def _said(self, queue: list[Any], send: Send, *, known: bool) -> bool:
        if known and not self.line.broken:
            queue.append(send.message)
            return True
        return send.droppable

    # The laws

    def _release(self, name: str) -> None:
        """Blocks are the engine's again: it overwrites them, also while they are being written."""
        blocks = set(tables(2 * self.held.pop(name))["kv"].ids.tolist())
        self.memory |= dict.fromkeys(blocks, GARBAGE)

    def _check_ended(self, load: Load) -> None:
        told = self.told[self.loads.index(load)]
        kept = not {"time", "withdraw", "restart prefill"} & self._happened
        kept = kept and self.held.get(load.request.id, told) == told
        if kept and isinstance(load.error, errors.LeaseError) and load.parts[0].hold is not None:
            raise BrokenLawError(f"request {load.request.id} was claimed, and not kept: {load.error}")
        if load.error is not None:
            return
        have = [self.copied.get(block) for block in _blocks(load)]
        # Decode knows only the name of a prompt that prefill computes: it may get a later hold of that name.
        later = {other for other in self.holds if other > told and self.fixed.chunked}
        if not any(have == [one] * len(have) for one in {told, *later}):
            raise BrokenLawError(f"request {load.request.id} is done with the content of holds {have}, not {told}")


def _of(all_: list[Copying], whose: Any) -> Copying:
    for copying in all_:
        if copying.whose is whose or copying.whose == whose:
            return copying
    all_.append(Copying(whose))
    return all_[-1]


def _blocks(load: Load) -> list[int]:
    return [int(block) for block in tables_of(load).ids]


def tables_of(load: Load) -> Blocks:
    found = load.request.decode["kv"]
    assert isinstance(found, Blocks)
    return found


def _size(runs: Mapping[str, Runs]) -> int:
    return 1


def _decode_core(fixed: Fixed) -> DecodeCore:
    return DecodeCore(fixed.plan.decode, POOL, 8, 0.0)


def _prefill_core(first_hold: int = 0) -> PrefillCore:
    return PrefillCore(0, LEASE, 8, first_hold)
