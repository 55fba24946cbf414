"""Memory for hand-made plans, filled and checked by plain indexing that knows nothing of tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from tests.runtime.helpers.plans import ROW, STATE, Bytes, Model, Shape, held, plan, with_ranges
from tests.slowness import Patience

from kvplan.plan.request import Tables, blocks
from kvplan.plan.types import Blocks, Plan
from kvplan.runtime import DecodeWorker, Identity, InMemory, Nixl, Plain, Pool, PrefillWorker, Request, Slot, views
from kvplan.runtime.transport.inmemory import Hub

LOGICAL = 40


@dataclass(frozen=True, slots=True)
class Truth:
    """The content of the whole model: k[layer, head, token, byte], s[layer, head, byte]."""

    k: Bytes
    s: Bytes


def truth(model: Model, tokens: int, seed: int = 0) -> Truth:
    random = np.random.default_rng(seed)
    size = len(model.layers), model.heads
    return Truth(
        random.integers(1, 256, (*size, tokens, ROW), np.uint8), random.integers(1, 256, (*size, STATE), np.uint8)
    )


def memory(shape: Shape, model: Model, worker: int, logical: int = LOGICAL) -> dict[str, Bytes]:
    """One allocation for the token planes, one for the states; every plane (blocks, stride)."""
    heads = len(held(model, shape, worker))
    stride = heads * shape.kernel * ROW + shape.tail
    kv = np.zeros((len(model.layers), logical * shape.ratio, stride), np.uint8)
    states = np.zeros((len(model.layers), logical, heads * STATE), np.uint8)
    found = {f"kv.{layer}": kv[index] for index, layer in enumerate(model.layers)}
    if model.state:
        found |= {f"state.{layer}": states[index] for index, layer in enumerate(model.layers)}
    return found


def fill(shape: Shape, model: Model, worker: int, arrays: dict[str, Bytes], content: Truth, tables: Tables) -> None:
    heads, table = held(model, shape, worker), tables["kv"]
    for index, layer in enumerate(model.layers):
        pages = _pages(shape, len(heads), arrays[f"kv.{layer}"])
        for token in range(content.k.shape[2]):
            block, at = _block(shape, table, token)
            if block >= 0:
                pages[block, :, at] = content.k[index, heads.start : heads.stop, token]
        if model.state:
            state = arrays[f"state.{layer}"].reshape(-1, len(heads), STATE)
            state[blocks(tables["state"]).ids[0]] = content.s[index, heads.start : heads.stop]


def expect(
    shape: Shape, model: Model, worker: int, content: Truth, tables: Tables, tokens: tuple[int, int]
) -> dict[str, Bytes]:
    """Memory that holds the tokens asked for and the states, and zero elsewhere."""
    arrays = memory(shape, model, worker)
    clipped = content.k.copy()
    clipped[:, :, : tokens[0]] = clipped[:, :, tokens[1] :] = 0
    if tokens[0] < tokens[1]:
        fill(shape, model, worker, arrays, Truth(clipped, content.s), tables)
    return arrays


def _pages(shape: Shape, heads: int, array: Bytes) -> Bytes:
    inner = array[:, : heads * shape.kernel * ROW]
    return np.lib.stride_tricks.as_strided(
        inner, (len(array), heads, shape.kernel, ROW), (array.strides[0], shape.kernel * ROW, ROW, 1)
    )


def _block(shape: Shape, table: object, token: int) -> tuple[int, int]:
    assert isinstance(table, Blocks)
    position, at = divmod(token, shape.kernel * shape.ratio)
    index = position - table.first
    if not 0 <= index < len(table.ids) or table.ids[index] < 0:
        return -1, 0
    return int(table.ids[index]) * shape.ratio + at // shape.kernel, at % shape.kernel


@dataclass(slots=True)
class World:
    """A prefill engine and a decode engine in this process, connected."""

    plan: Plan
    shapes: tuple[Shape, Shape]
    model: Model
    prefill: list[PrefillWorker]
    decode: list[DecodeWorker]
    prefill_memory: list[dict[str, Bytes]]
    decode_memory: list[dict[str, Bytes]]
    hub: Hub
    mode: str

    def transport(self, worker: PrefillWorker | DecodeWorker) -> InMemory:
        """The in-memory transport of a worker."""
        return self.hub.agents[worker.inspect().transport]

    def pool(self, worker: PrefillWorker | DecodeWorker) -> Pool:
        """The memory of a worker, to register it once more."""
        number, decodes = worker.worker, isinstance(worker, DecodeWorker)
        side = self.plan.decode if decodes else self.plan.prefill
        return views(side, number, (self.decode_memory if decodes else self.prefill_memory)[number])

    def poll(self) -> None:
        for worker in self.prefill:
            worker.run_once()

    def hold(self, *requests: str) -> None:
        """Hold requests on every prefill worker."""
        for name in requests:
            for worker in self.prefill:
                worker.hold(name)

    def released(self) -> set[tuple[str, str]]:
        """(request, why) that all prefill workers have released, within some seconds."""
        patience, found = Patience(30), [set[tuple[str, str]]() for _ in self.prefill]
        while not all(found) and patience.lasts():
            for worker, mine in zip(self.prefill, found, strict=True):
                mine |= {(one.request, one.why) for one in worker.released()}
            for target in self.decode:
                target.run_once()
        return set.intersection(*found)

    def close(self) -> None:
        for worker in self.decode:
            worker.close()
        for source in self.prefill:
            source.close()


PREFILL, DECODE = Identity("prefill", "p1"), Identity("decode", "d1")
# Worlds that the running test has made, closed at its end; None in a program that is no test.
opened: list[World] | None = None


def world(
    prefill: Shape, decode: Shape, model: Model = Model(), *, nixl: bool = False, mode: str = "pull",  # noqa: B008
    staged: tuple[str, ...] = (), **options: Any,
) -> World:  # fmt: skip
    """Engines of these shapes; options go to the prefill workers, those that begin with d_ to the decode workers.

    All that can be goes by way of a stage, in the ways that `staged` names.
    """
    made, hub = plan(prefill, decode, model), Hub()
    made = with_ranges(made, *staged) if staged else made
    theirs = {name.removeprefix("d_"): options.pop(name) for name in list(options) if name.startswith("d_")}

    def transport(name: str) -> InMemory | Nixl:
        return Nixl(name, telemetry=True) if nixl else InMemory(hub, name)

    sources, targets = [], []
    p_memory = [memory(prefill, model, number) for number in range(prefill.workers)]
    d_memory = [memory(decode, model, number) for number in range(decode.workers)]
    given: dict[str, Any] = {"identity": PREFILL, "keys": Plain(), **options}
    for number, arrays in enumerate(p_memory):
        pool: Pool = views(made.prefill, number, arrays)
        sources.append(PrefillWorker(made, number, pool, transport(f"p{number}"), **given))
    for source in sources:
        source.announce([one.address for one in sources])
    given = {"identity": DECODE, "keys": Plain(), **theirs}
    for number, arrays in enumerate(d_memory):
        pool = views(made.decode, number, arrays)
        targets.append(DecodeWorker(made, number, pool, transport(f"d{number}"), **given))
        with answering(*sources) if options.get("start") is False else nullcontext():
            targets[-1].connect(sources[0].address, 10, mode=mode)
    found = World(made, (prefill, decode), model, sources, targets, p_memory, d_memory, hub, mode)
    if opened is not None:
        opened.append(found)
    return found


@contextmanager
def answering(*workers: PrefillWorker) -> Iterator[None]:
    """Carry out the steps of workers that were not started, from a thread."""
    over = threading.Event()

    def answer() -> None:
        while not over.wait(1e-3):
            for worker in workers:
                worker.run_once()

    thread = threading.Thread(target=answer, name="answering")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def tables(shape: Shape, model: Model, ids: list[int], first: int, slot: int, at: int) -> Tables:
    found: dict[str, Blocks | Slot] = {"kv": Blocks(first, np.array(ids, np.int64))}
    if model.state:
        found["state"] = Slot(slot, at)
    return found


def request(name: str, tokens: tuple[int, int], prefill: Tables, decode: Tables) -> Request:
    return Request(name, tokens, prefill, decode)
