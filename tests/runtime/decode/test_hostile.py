"""Requests that hold anything at all, and failures at awkward moments: typed errors, right bytes, no early word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.runtime.decode.test_worker import freeze, submitted
from tests.runtime.helpers.plans import Model, Shape
from tests.runtime.helpers.requests import ask, looked_at, move
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import World, tables, world

from kvplan.plan.types import Blocks
from kvplan.runtime import Limits, Request, Slot, errors

DTYPES = ["int64", "int32", "uint32", "uint64", "int16", "uint8", "int8", ">i4"]


@pytest.fixture
def pair() -> World:
    return world(Shape(2), Shape(1))


@pytest.mark.parametrize(("theirs", "ours"), [*zip(DTYPES, DTYPES[::-1], strict=True)])
def test_ids_of_every_dtype(theirs: str, ours: str) -> None:
    made = world(Shape(1, ratio=8), Shape(1, ratio=8), Model(state=False))
    sides = {"kv": Blocks(0, np.array([30, 31, 7], theirs))}, {"kv": Blocks(0, np.array([35, 36, 5], ours))}
    move(made, Request("r", (0, 96), *sides))


def kv(request: Request, first: Any, ids: Any) -> Request:
    return replace(request, prefill={**request.prefill, "kv": Blocks(first, ids)})


def state(request: Request, slot: Any) -> Request:
    return replace(request, prefill={**request.prefill, "state": Slot(slot, 12)})


def huge(end: int) -> Callable[[World, Request], Request]:
    def made(world: World, request: Request) -> Request:
        sides = [tables(shape, world.model, [1, 2, 3], 0, 4, end) for shape in world.shapes]
        return Request("r", (0, end), sides[0], sides[1])

    return made


IDS = np.arange(3)
HOSTILE: dict[str, Callable[[World, Any], Any]] = {
    "two rows": lambda _, r: kv(r, 0, np.ones((2, 3), int)),
    "uint64 beyond int64": lambda _, r: kv(r, 0, np.array([1, 2, 2**64 - 1], np.uint64)),
    "bools": lambda _, r: kv(r, 0, np.ones(3, bool)),
    "objects": lambda _, r: kv(r, 0, np.array([1, 2, 3], object)),
    "a list of fractions": lambda _, r: kv(r, 0, [1.0, 2, 3]),
    "a list with none": lambda _, r: kv(r, 0, [1, None, 3]),
    "a list of texts": lambda _, r: kv(r, 0, ["1", "2", "3"]),
    "a list beyond int64": lambda _, r: kv(r, 0, [1, 2, 2**63]),
    "first float": lambda _, r: kv(r, 0.0, IDS),
    "first huge": lambda _, r: kv(r, 2**63, IDS),
    "first far": lambda _, r: kv(r, 2**62, IDS),
    "float tokens": lambda _, r: replace(r, tokens=(0.0, 12.0)),
    "bool tokens": lambda _, r: replace(r, tokens=(False, 12)),
    "three tokens": lambda _, r: replace(r, tokens=(0, 1, 12)),
    "no tokens": lambda _, r: replace(r, tokens=None),
    "far tokens": huge(2**45),
    "farther tokens": huge(2**63 - 1),
    "too far tokens": huge(2**70),
    "slot huge": lambda _, r: state(r, 2**63),
    "slot text": lambda _, r: state(r, "x"),
    "slot bool": lambda _, r: state(r, True),
    "slot negative": lambda _, r: state(r, -(2**70)),
    "no tables": lambda _, r: replace(r, prefill=None),
    "a table of None": lambda _, r: replace(r, decode={"kv": None, "state": None}),
    "group 5": lambda _, r: replace(r, decode={**r.decode, 5: None}),
    "a last page that is whole by number": lambda _, r: replace(r, whole_last_page=1),
    "id number": lambda _, r: replace(r, id=5),
    "id list": lambda _, r: replace(r, id=[]),
    "id empty": lambda _, r: replace(r, id=""),
    "id surrogate": lambda _, r: replace(r, id="\udc80"),
    "id long": lambda _, r: replace(r, id="é" * 129),
    "no request": lambda _, r: None,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_a_request_holds_fails_it_alone(pair: World, name: str) -> None:
    failed = looked_at(pair.decode[0].submit(HOSTILE[name](pair, ask(pair, (0, 12))), 5))
    assert (failed.state, type(failed.error)) == ("failed", errors.BadRequestError)
    move(pair, ask(pair, (0, 12), name="é" * 128))


@pytest.mark.parametrize("wait", [-1, "2", float("nan"), True])
def test_a_wait_that_is_none_is_refused(pair: World, wait: Any) -> None:
    """How long a request waits until it is held."""
    transfer = looked_at(pair.decode[0].submit(ask(pair, (0, 45)), 20, wait=wait))
    assert isinstance(transfer.error, errors.BadRequestError)


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), -1, "5", None, 10**400])
def test_timeouts(pair: World, timeout: Any) -> None:
    assert isinstance(looked_at(pair.decode[0].submit(ask(pair, (0, 12)), timeout)).error, errors.BadRequestError)
    with pytest.raises(errors.HandshakeError, match="timeout"):
        pair.decode[0].connect(pair.prefill[0].address, timeout)


def test_no_sibling_is_posted_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    small = Limits(bytes_per_peer=512, bytes_total=1 << 20, slice_bytes=256)
    made = world(Shape(1), Shape(1), d_limits=small)
    transport, posted = made.transport(made.decode[0]), []

    def once(post: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            posted.append(arguments)
            if len(posted) == 2:
                raise errors.TransportError("the transport failed")
            return post(*arguments)

        return call

    for name in ("post", "post_spans"):
        monkeypatch.setattr(transport, name, once(getattr(transport, name)))
    freeze(made)
    failed = submitted(made, ask(made, (0, 45)))
    until(failed.poll)
    for _ in range(20):
        made.decode[0].run_once()
    assert (failed.state, len(posted)) == ("failed", 2)
    assert made.decode[0].quarantined(), "the transport may have begun what it raised for"


@pytest.mark.parametrize("end", ["close", "drop"])
def test_a_callback_that_asks_again_while_all_ends(pair: World, end: str) -> None:
    freeze(pair)
    worker, again = pair.decode[0], []
    running = submitted(pair, ask(pair, (0, 12)))
    running.on_end(lambda _: again.append(worker.submit(ask(pair, (0, 12), name="again"), 5)))
    worker.close() if end == "close" else worker.drop("prefill")
    assert isinstance(looked_at(again[0]).error, errors.HandleError if end == "close" else errors.HandshakeError)
    assert worker.peers() == ()
