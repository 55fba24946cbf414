"""A request's life in a simulated fleet, as steps of simpy: from its arrival to its last token, or until it is lost.

It waits for a prefill engine's turn and blocks, is computed, and held under a lease. Decode waits for a turn and blocks
of its own, claims the request, and has it moved slice by slice; once that is confirmed prefill's blocks are free. Then
it is answered token by token. If layers move while others are computed, decode's half begins when the request arrives.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kvplan.compiler.cost.links import LinkLoad, added
from kvplan.compiler.cost.profile import cold_us
from kvplan.traffic.arrivals import Arrival
from kvplan.traffic.block_pool import BlockGrant
from kvplan.traffic.engines import MovedSlice, SharedMachine, SimulatedEngine, Steps
from kvplan.traffic.runs import RequestEnd, RequestTimes, SimulatedPair

if TYPE_CHECKING:
    from simpy import Environment
    from simpy.resources.resource import Request


class RequestLife:
    """One request between two engines, called `name` there."""

    def __init__(
        self,
        pair: SimulatedPair,
        machine: SharedMachine,
        name: str,
        arrival: Arrival,
        prefill: SimulatedEngine,
        decode: SimulatedEngine,
    ) -> None:
        self._pair, self._machine, self._env = pair, machine, machine.env
        self._name, self._arrival, self._prefill, self._decode = name, arrival, prefill, decode
        # Events: computing began (with its duration); decode has claimed the request; the request is given up.
        self._begun, self._claimed, self._given_up = (machine.env.event() for _ in range(3))
        self._times: dict[str, float] = {}

    def run(self) -> Steps:
        """Run the whole life, from now on, and return RequestTimes."""
        arrival, end = self._arrival, RequestEnd.REFUSED
        room = self._prefill.pool.fits(arrival.input) and self._decode.pool.fits(arrival.input + arrival.output)
        if room:
            with sent(self._decode):
                end = yield from self._serve()
        return RequestTimes(arrival.at, end, **self._times)

    def _serve(self) -> Steps:
        """Compute, move and answer the request; return its end."""
        with sent(self._prefill):
            early = self._env.process(self._run_decode()) if self._pair.pieces > 1 else None
            blocks = yield from self._compute()
            if blocks is None:
                self._given_up.succeed()
                return RequestEnd.REFUSED
            decoded = early or self._env.process(self._run_decode())
            yield self._claimed | self._env.timeout(self._pair.prefill.lease_s * 1e6)
            if not self._claimed.triggered:
                self._given_up.succeed()
            room = yield decoded
            self._prefill.held -= 1
            self._prefill.pool.give_back(blocks)
        if room is None:
            return RequestEnd.EXPIRED
        yield from self._answer(*room)
        return RequestEnd.DONE

    def _compute(self) -> Steps:
        """Compute the prompt except for cached tokens; return its blocks, None if it is refused."""
        engine, arrival = self._prefill, self._arrival
        with engine.turns.request() as turn:
            yield turn
            blocks: BlockGrant = yield engine.pool.take(arrival.input, arrival.hashes)
            if engine.held >= self._pair.limits.requests:
                engine.pool.give_back(blocks)
                return None
            engine.held += 1
            us = max(1, arrival.input - blocks.hits) / self._pair.prefill.tokens_per_s * 1e6
            self._times["began"] = self._env.now
            self._begun.succeed((self._env.now, us))
            yield self._env.timeout(us)
            engine.computed += us
        engine.pool.filled(blocks, arrival.hashes)
        self._times["computed"] = self._env.now
        return blocks

    def _run_decode(self) -> Steps:
        """Run decode's half until all bytes have arrived; return its turn and its blocks, None if it gave up."""
        pool, arrival = self._decode.pool, self._arrival
        turn = self._decode.turns.request()
        yield turn | self._given_up
        if self._given_up.triggered:
            self._leave(turn)
            return None
        blocks = pool.take(arrival.input + arrival.output, arrival.hashes)
        yield blocks | self._given_up
        if not self._given_up.triggered:
            self._claimed.succeed()
            admitted = self._env.now
            with moving(self._env, self._prefill, self._decode) as idle_us:
                yield from self._move(arrival.input - blocks.value.hits, idle_us)
        if self._given_up.triggered:
            pool.leave(blocks)
            self._leave(turn)
            return None
        pool.filled(blocks.value, arrival.hashes)
        self._times["submitted"] = max(admitted, self._times["computed"])
        self._times["moved"] = self._env.now
        return turn, blocks.value

    def _leave(self, turn: Request) -> None:
        """Give a turn back, or stop waiting for it."""
        if turn.triggered:
            self._decode.turns.release(turn)
        else:
            turn.cancel()

    def _move(self, tokens: int, idle_us: float) -> Steps:
        """Move the bytes of `tokens` tokens, piece by piece as they are computed; none if the request is given up
        before.

        Neither engine had a transfer for `idle_us` before.
        """
        profile, decode, now = self._machine.profile, self._decode, self._env.now
        # Decode's thread is busy while cold: other requests of this time wait for that, too.
        decode.warm = max(decode.warm, now + cold_us(profile, idle_us))
        yield self._env.timeout(profile.transfer_us + max(0.0, decode.warm - now))
        yield self._begun | self._given_up
        if self._given_up.triggered:
            return
        began, us = self._begun.value
        posts, slices = self._posts(tokens), list[MovedSlice]()
        for piece in range(1, self._pair.pieces + 1):
            yield self._env.timeout(max(0.0, began + us * piece / self._pair.pieces - self._env.now))
            slices += self._post_slices(posts)
        for each in slices:
            yield each.done

    def _post_slices(self, posts: list[LinkLoad]) -> list[MovedSlice]:
        """Return the slices of one piece, after each is given to the worker that posts it."""
        slices, pull = [], self._pair.mode == "pull"
        for link in posts:
            engine, peer = (self._decode, self._prefill) if pull else (self._prefill, self._decode)
            worker, other = (link.decode, link.prefill) if pull else (link.prefill, link.decode)
            parts = self._cut(link, f"{peer.name}/{other}")
            engine.workers[worker].want(self._name, parts)
            slices += parts
        return slices

    def _posts(self, tokens: int) -> list[LinkLoad]:
        """Return what each worker posts for a request: a reader for all sources together, a writer for each reader."""
        loads = self._pair.loads.of(tokens)
        if self._pair.mode == "push":
            return list(loads)
        return [added([load for load in loads if load.decode == worker]) for worker in self._decode.workers]

    def _cut(self, link: LinkLoad, peer: str) -> list[MovedSlice]:
        """Cut one piece of a load into slices, none if nothing moves."""
        size = link.bytes / self._pair.pieces
        count = math.ceil(size / self._pair.limits.slice_bytes)
        parts = max(1, count) * self._pair.pieces
        rails = tuple(engine.rails for engine in (self._prefill, self._decode) if engine.rails is not None)
        cap = min(self._machine.profile.wire / 1e6, self._prefill.rail, self._decode.rail)
        load = link.descriptors / parts, link.bytes / parts, link.copy_us / parts
        return [MovedSlice(peer, *load, rails, cap, self._env.event()) for _ in range(count)]

    def _answer(self, turn: Request, blocks: BlockGrant) -> Steps:
        """Answer token by token, then free decode's blocks."""
        step = self._pair.decode.us_per_token
        yield self._env.timeout(step)
        self._times["first"] = self._env.now
        yield self._env.timeout(max(0, self._arrival.output - 1) * step)
        self._times["answered"] = self._env.now
        self._decode.turns.release(turn)
        self._decode.pool.give_back(blocks)


@contextmanager
def sent(engine: SimulatedEngine) -> Iterator[None]:
    """Count a request as an engine's load while it is there."""
    engine.load += 1
    yield
    engine.load -= 1


@contextmanager
def moving(env: Environment, *engines: SimulatedEngine) -> Iterator[float]:
    """Mark engines as moving during a transfer; yield how long all of them were idle before."""
    idle_us = min(engine.idle(env.now) for engine in engines)
    for engine in engines:
        engine.moving += 1
    yield idle_us
    for engine in engines:
        engine.moving, engine.moved = engine.moving - 1, env.now
