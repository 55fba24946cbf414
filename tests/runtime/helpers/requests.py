"""Requests over the memory of a world: what they hold, and moving one while every byte is compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.worlds import World, expect, fill, tables, truth

from kvplan.runtime import Request, Transfer


def ids(shape: Shape, count: int, order: str, seed: int) -> list[int]:
    need = -(-count // (shape.kernel * shape.ratio))
    found = np.random.default_rng(seed).permutation(20)[:need] + 3
    return {"random": found, "rising": np.arange(need) + 7, "edges": np.arange(need)}[order].tolist()


def ask(made: World, tokens: tuple[int, int], order: str = "random", name: str = "r") -> Request:
    sides = [
        tables(shape, made.model, ids(shape, tokens[1], order, n), 0, 5 + n, tokens[1])
        for n, shape in enumerate(made.shapes)
    ]
    return Request(name, tokens, sides[0], sides[1])


def filled(made: World, request: Request) -> None:
    """The content of a request in the memory of every prefill worker."""
    for number, arrays in enumerate(made.prefill_memory):
        fill(made.shapes[0], made.model, number, arrays, truth(made.model, request.tokens[1]), request.prefill)


def check(made: World, number: int, request: Request, held: int | None = None) -> None:
    """Every byte of a decode worker after a request; prefill has `held` tokens, or as many as are asked for."""
    content = truth(made.model, held or request.tokens[1])
    wanted = expect(made.shapes[1], made.model, number, content, request.decode, request.tokens)
    for plane, array in made.decode_memory[number].items():
        got, want = (without_padding(made, number, plane, one) for one in (array, wanted[plane]))
        np.testing.assert_array_equal(got, want)


def looked_at(transfer: Transfer) -> Transfer:
    """A transfer after its worker's next step, in which it is begun."""
    transfer.poll()
    return transfer


def move(made: World, request: Request) -> None:
    """Hold a request, have every decode worker fetch it, and compare all that it holds afterwards."""
    filled(made, request)
    for source in made.prefill:
        source.hold(request.id, request.prefill)
    for number, worker in enumerate(made.decode):
        done = worker.submit(request, 20).wait()
        assert done.state == "done"
        assert_counts(made, number, done, request)
        check(made, number, request)
    assert made.released() == {(request.id, "finished")}


def assert_counts(made: World, number: int, done: Transfer, request: Request) -> None:
    """The posted descriptors are those predicted, if this side posts."""
    if made.mode == "pull":
        predicted = sum(made.decode[number].predict(request).values())
        assert (done.descriptors, done.posted) == (predicted, predicted)


def without_padding(made: World, number: int, plane: str, array: np.ndarray) -> np.ndarray:
    entry = made.plan.decode.workers[number].planes[0 if plane.startswith("kv") else 1]
    return array[:, : entry.page_bytes]


def clear(made: World) -> None:
    """Zero in all decode memory."""
    for arrays in made.decode_memory:
        for array in arrays.values():
            array[:] = 0


def fed(request: Request) -> Request:
    """A request whose prefill tables come with its chunks."""
    return replace(request, prefill={})
