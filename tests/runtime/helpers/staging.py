"""Requests by way of a stage: that of who moves bytes, or that of its peer, which packs for it, or unpacks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask, check, clear, filled, looked_at
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, world

from kvplan.plan import stage as plan_stage
from kvplan.runtime import Counters, DecodeWorker, Limits, PrefillWorker
from kvplan.runtime.control.messages import AskBuffer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.inspection import PeerStageState, StageState
from kvplan.runtime.staging import staged
from kvplan.runtime.staging.buffers import BUFFERS, SHARE, THREADS
from kvplan.runtime.staging.requested_images import RequestedImages
from kvplan.runtime.staging.staged import StagedPiece
from kvplan.runtime.staging.views import HostCopies

BOTH = "unpack", "pack"
# Which tables plans have, and who moves bytes.
WAYS = {"pull": (BOTH, "pull"), "push": (BOTH, "push"), "packed": (("pack",), "pull"), "lent": (("unpack",), "push")}
# Room for one block of both layers, or a state, in a buffer; of what is packed, of both heads.
SMALL = {way: BUFFERS * (128 if way == "packed" else 64) for way in WAYS}
TOKENS = 40


class Gate:
    """Copies wait here, `waiting` of them on as many threads, until they are let through."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.go, self._waiting = threading.Event(), list[None]()
        make = HostCopies.make

        def waiting(*arguments: Any, **named: Any) -> None:
            self._waiting.append(None)
            assert self.go.wait(20)
            make(*arguments, **named)

        patch.setattr(HostCopies, "make", waiting)
        patch.setattr(staged, "AT_ONCE", 0)

    @property
    def waiting(self) -> int:
        return len(self._waiting)


def staging(way: str, *shapes: Shape, size: int, **options: Any) -> World:
    """Engines of two shapes whose requests go by a way, through stages of `size` bytes of who copies."""
    staged, mode = WAYS[way]
    options |= {"stage_bytes": 0 if way == "lent" else size, "d_stage_bytes": 0 if way == "packed" else size}
    return world(shapes[0], shapes[1], Model(), mode=mode, staged=staged, **options)


def crowded(way: str, counters: Counters) -> World:
    """Two prefill workers of a head each, and a decode worker of both, polled by hand: more pieces than buffers."""
    limits = Limits(slice_bytes=512)
    counted = {"counters": counters, "d_counters": counters}
    return staging(way, Shape(2), Shape(1), size=SMALL[way], limits=limits, d_limits=limits, lease=600, **counted)


def untouched(made: World) -> bool:
    """Whether nothing was written on decode."""
    return not any(array.any() for arrays in made.decode_memory for array in arrays.values())


def moved_layer_by_layer(made: World) -> None:
    """A request is offered as each of its layers is there, and is right."""
    asked = ask(made, (0, TOKENS))
    filled(made, asked)
    for worker in made.prefill:
        worker.open("r", (0, TOKENS))
        for layer in made.model.layers:
            last = layer == made.model.layers[-1]
            worker.offer("r", (0, TOKENS), asked.prefill, layers=[layer], last=last)
    transfer = made.decode[0].open(replace(asked, prefill={}), 20)
    run(made, lambda: transfer.ended)
    assert transfer.error is None
    check(made, 0, asked)
    run(made, lambda: unused(made))


def run(made: World, met: Callable[[], object]) -> None:
    """Poll the decode workers; the others poll by themselves."""
    poll(made.decode, met)


def poll(workers: list[DecodeWorker], met: Callable[[], object]) -> None:
    until(met, *(worker.run_once for worker in workers), pause=1e-4)


def begun(made: World, name: str = "r") -> Transfer:
    """A request of which prefill holds everything."""
    asked = ask(made, (0, TOKENS), name=name)
    filled(made, asked)
    made.hold(name)
    return looked_at(made.decode[0].submit(asked, 20))


def copying(made: World) -> list[PrefillWorker] | list[DecodeWorker]:
    """The workers whose stages requests go through."""
    ways = {plan_stage.way(read.table, made.mode == "push") for reads in made.plan.reads for read in reads}
    return made.decode if "unpack" in ways else made.prefill


def asked_layers(patch: pytest.MonkeyPatch) -> set[tuple[int, ...] | None]:
    """The layers of every piece that peers ask for from now on."""
    found, real = set[tuple[int, ...] | None](), RequestedImages.piece

    def piece(images: RequestedImages, asked: AskBuffer, before: Collection[int]) -> StagedPiece:
        found.add(asked.layers)
        return real(images, asked, before)

    patch.setattr(RequestedImages, "piece", piece)
    return found


def stopped(made: World, gate: Gate) -> bool:
    """Whether all buffers are lent, and every thread that copies waits at the gate."""
    return exhausted(made) and gate.waiting == THREADS * len(copying(made))


def peer_stages(made: World) -> list[PeerStageState]:
    """The stages of peers, as every worker knows them."""
    return [stage for worker in (*made.decode, *made.prefill) for stage in worker.inspect().peer_stages]


def lent(made: World) -> list[int]:
    """How many buffers of each stage are lent."""
    return [len(worker.inspect().stage.lent) for worker in copying(made)]


def kept(made: World) -> list[int]:
    """How many buffers of each stage belong to requests that have ended."""
    return [sum(count for _, count in worker.inspect().stage.kept) for worker in copying(made)]


def exhausted(made: World) -> bool:
    """Whether every worker that copies has lent all that one peer may have."""
    return all(count >= SHARE for count in lent(made))


def unused(made: World) -> bool:
    packs = sum(worker.inspect().packs for worker in made.prefill)
    asked = any(peer.asked or peer.waiting or peer.kept for peer in peer_stages(made))
    return all(idle(worker.inspect().stage) for worker in copying(made)) and not packs and not asked


def idle(stage: StageState) -> bool:
    """Whether all its buffers are there, unless nobody has asked for the first one yet, and nobody waits."""
    there = not stage.open or len(stage.free) == BUFFERS
    return there and not stage.waiting and not stage.kept


def whole(made: World) -> None:
    """A request moves, all of it by way of the stage but for blocks that are not full."""
    clear(made)
    again = begun(made, "again")
    run(made, lambda: again.ended)
    assert again.error is None
    check(made, 0, ask(made, (0, TOKENS), name="again"))
    run(made, lambda: unused(made))
