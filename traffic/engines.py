"""Engines of a simulated fleet: each one's blocks, network cards and posting workers."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kvplan.dsl.schema.fleet import Rails
from kvplan.dsl.schema.machine import MachineProfile
from kvplan.runtime.transfer.executor import SMALL, TOGETHER
from kvplan.runtime.transfer.limits import AdmissionQueue, Limits
from kvplan.traffic.block_pool import BlockPool
from kvplan.traffic.fair_share import FairShare, SharedPool

if TYPE_CHECKING:
    from simpy import Environment, Event, Resource

Steps = Generator["Event", Any, Any]


@dataclass(frozen=True, slots=True)
class SharedMachine:
    """The resources that all engines share: clock, network, and processor cores if all run on one machine."""

    env: Environment
    profile: MachineProfile
    limits: Limits
    network: FairShare
    processors: FairShare
    cores: SharedPool | None

    def work(self, us: float) -> Event:
        """Return an event for the end of `us` microseconds of a thread's work."""
        if self.cores is None:
            return self.env.timeout(us)
        return self.processors.move(us, 1.0, (self.cores,))


@dataclass(eq=False, slots=True)
class MovedSlice:
    """A slice that one worker moves to or from `peer`: descriptors and bytes on the wire, microseconds of copies.

    Its bytes go over `rails`, at most `cap` bytes a microsecond; without rails the worker that posts copies them.
    """

    peer: str
    descriptors: float
    bytes: float
    copy_us: float
    rails: tuple[SharedPool, ...]
    cap: float
    done: Event


class PostingWorker:
    """A worker that posts reads or writes, on one thread: one slice after the other, as limits admit them.

    It works `busy` microseconds in all. If `copies_last`, it copies bytes that come over rails after their arrival,
    otherwise before it posts.
    """

    def __init__(self, machine: SharedMachine, copies_last: bool) -> None:
        from simpy import Resource

        self._machine, self._copies_last = machine, copies_last
        self._thread: Resource = Resource(machine.env)
        self._admission: AdmissionQueue[MovedSlice] = AdmissionQueue(machine.limits)
        self._stirred = machine.env.event()
        self.busy = 0.0
        machine.env.process(self._run())

    def want(self, request: str, slices: Iterable[MovedSlice]) -> None:
        """Move slices of a request, when it is their turn."""
        for each in slices:
            self._admission.want(each.peer, request, math.ceil(each.bytes), each)
        self._stir()

    def _stir(self) -> None:
        if not self._stirred.triggered:
            self._stirred.succeed()

    def _run(self) -> Steps:
        while True:
            admitted, posted = self._admission.admit(self._machine.limits.slice_bytes), self._machine.env.event()
            for group in together(admitted):
                yield from self._post(group, posted)
            posted.succeed()
            if not admitted:
                self._stirred = self._machine.env.event()
                yield self._stirred

    def _post(self, group: list[MovedSlice], posted: Event) -> Steps:
        yield from self._works(self._machine.profile.slice_us + sum(map(self._posting_us, group)))
        for each in group:
            self._machine.env.process(self._arrive(each, posted))

    def _posting_us(self, each: MovedSlice) -> float:
        """Return the thread's work until the bytes have arrived, or are in progress over rails."""
        posted = each.descriptors * self._machine.profile.descriptor_us
        if not each.rails:
            return posted + each.bytes / each.cap + each.copy_us
        return posted + (0.0 if self._copies_last else each.copy_us)

    def _arrive(self, each: MovedSlice, posted: Event) -> Steps:
        """Handle an arrival after the whole admitted group is `posted`: a thread that posts does nothing else."""
        if each.rails:
            yield self._machine.network.move(each.bytes, each.cap, each.rails)
        yield posted
        if each.rails and self._copies_last and each.copy_us:
            yield from self._works(each.copy_us)
        self._admission.done(each)
        each.done.succeed()
        self._stir()

    def _works(self, us: float) -> Steps:
        with self._thread.request() as turn:
            yield turn
            began = self._machine.env.now
            yield self._machine.work(us)
            self.busy += self._machine.env.now - began


def together(admitted: Iterable[MovedSlice]) -> list[list[MovedSlice]]:
    """Group slices in the order in which they are posted: consecutive small ones of one peer are one transfer.

    The rule is that of `transfer/executor.py`.
    """
    groups: list[list[MovedSlice]] = []
    size = 0.0
    for each in admitted:
        fits = groups and each.peer == groups[-1][0].peer and max(each.bytes, groups[-1][0].bytes) <= SMALL
        if fits and size + each.bytes <= TOGETHER:
            groups[-1].append(each)
            size += each.bytes
        else:
            groups.append([each])
            size = each.bytes
    return groups


@dataclass(eq=False, slots=True)
class SimulatedEngine:
    """One engine: its blocks, its turns (of computing, or of answers), its cards, and its workers by number.

    `load` counts requests that were sent to it and have not left, `held` those that wait to be read. It has computed
    for `computed` microseconds. `moving` transfers are in progress, the last one ended at `moved`; the first one after
    a pause has warmed it up at `warm`.
    """

    name: str
    pool: BlockPool
    turns: Resource
    rails: SharedPool | None
    rail: float
    workers: Mapping[int, PostingWorker] = field(default_factory=dict)
    load: int = 0
    held: int = 0
    computed: float = 0.0
    moving: int = 0
    moved: float = -math.inf
    warm: float = -math.inf

    def idle(self, now: float) -> float:
        """Return the microseconds since its last transfer, infinite before the first one."""
        return 0.0 if self.moving else now - self.moved


def rails_of(rails: Rails | None) -> tuple[SharedPool | None, float]:
    """Return all cards of an engine together, and the rate of one of them, in bytes a microsecond."""
    if rails is None:
        return None, math.inf
    return SharedPool(rails.count * rails.rate / 1e6), rails.rate / 1e6
