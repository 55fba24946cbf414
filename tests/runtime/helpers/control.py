"""Both ends of a handshake for tests: a served prefill worker, keys, and plans."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import zmq
from tests.runtime.helpers.plans import Shape, plan

from kvplan.plan import planes as names
from kvplan.plan.types import Side
from kvplan.runtime import errors
from kvplan.runtime.clock import now
from kvplan.runtime.control.card import PROTOCOL, Hello, Refusal, WorkerCard, describe, unseal
from kvplan.runtime.control.channel import ControlServer
from kvplan.runtime.control.handshake import Caller, MetEngine, meet
from kvplan.runtime.control.handshake_server import PrefillFace, answer_hello
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.memory.geometry import Geometry
from kvplan.runtime.plans.catalog import FixedPlans

PLAN = plan(Shape(2), Shape(1))
BIND = "tcp://127.0.0.1:*"
BASE, BLOCKS = 1 << 20, 8


def unsealed(data: bytes, kind: Any) -> Any:
    """The one value that was sealed. Raises as `unseal`."""
    (value,) = unseal(data, kind)
    return value


LONG = 30.0
Alter = Callable[[int, Any, Any], Any]


def lie(side: Side, worker: int) -> Geometry:
    """Planes of a worker one behind the other, in one region."""
    planes = names.planes(side.workers[worker])
    ratio = {group.name: group.ratio for group in side.groups}
    count = np.array([BLOCKS * ratio[plane.group] for plane in planes], np.int64)
    stride = np.array([plane.stride for plane in planes], np.int64)
    ends = np.cumsum(count * stride)
    zeros = np.zeros(len(planes), np.int64)
    regions = np.array([[BASE, int(ends[-1]), 0]], np.int64)
    page = np.array([plane.page for plane in planes], np.int64)
    return Geometry(BASE + ends - count * stride, stride, page, count, zeros, zeros, regions, ("DRAM",))


def local(worker: int = 0, **change: Any) -> PrefillFace:
    side = PLAN.prefill
    values = {
        "side": side,
        "worker": worker,
        "plans": FixedPlans((PLAN,)),
        "generation": 3,
        "addresses": ("tcp://a:1",) * 2,
    }
    values |= {"geometry": lie(side, worker), "metadata": b"metadata", **change}
    identity = change.get("identity", Identity("prefill-0", "run-p"))
    model = {"model": identity.model or PLAN.model, "model_digest": identity.model_digest or PLAN.model_digest}
    return PrefillFace(**{**values, "identity": replace(identity, **model)})


def pair() -> tuple[Keys, Keys]:
    """Keys of two engines that know each other."""
    one, other = zmq.curve_keypair(), zmq.curve_keypair()
    return Keys(*one, frozenset({other[0]})), Keys(*other, frozenset({one[0]}))


def answer(desk: ControlServer, reply: Callable[[Any], Any]) -> None:
    """One round of a prefill worker's poll."""
    desk.wait(0.02)
    for identity, message in desk.receive():
        refused = isinstance(message, errors.CardError)
        desk.send(identity, Refusal(message.code, str(message)[:4000], False, b"") if refused else reply(message))


@contextmanager
def serving(desk: ControlServer, reply: Callable[[Any], Any]) -> Iterator[ControlServer]:
    """A desk that is answered by a thread until the end of the block, and then closed."""
    over = threading.Event()

    def loop() -> None:
        while not over.is_set():
            answer(desk, reply)

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        yield desk
    finally:
        over.set()
        thread.join()
        desk.close()


@contextmanager
def engine(
    keys: Keys | Plain | None = None,
    alter: Callable[[int, Any, Any], Any] = lambda worker, hello, card: card,
    **change: Any,
) -> Iterator[list[ControlServer]]:
    """Both workers of a prefill engine; `alter` changes what worker number so-and-so answers."""
    desks = [ControlServer(BIND, Plain() if keys is None else keys) for _ in range(2)]
    given = {"addresses": tuple(desk.address for desk in desks), **change}

    def reply(worker: int) -> Callable[[Any], Any]:
        me = local(worker, **given)
        return lambda hello: alter(worker, hello, answer_hello(hello, me))

    with serving(desks[0], reply(0)), serving(desks[1], reply(1)):
        yield desks


def connect(address: str, **change: Any) -> MetEngine:
    """Meet as decode worker 0 of PLAN; the caller closes the lines."""
    digest = change.pop("model_digest", PLAN.model_digest)
    values = {"side": PLAN.decode, "worker": 0, "plans": FixedPlans((PLAN,)), "keys": Plain(), "server_key": None}
    deadline, clock = change.pop("deadline", now() + LONG), change.pop("clock", now)
    values |= {"seconds_left": lambda: deadline - clock(), "card_for": lambda plan: None, **change}
    identity = replace(change.get("identity", Identity("decode-0", "run-d")), model_digest=digest)
    return meet(Caller(**{**values, "identity": identity}), address)


def close(met: MetEngine) -> MetEngine:
    for _, line in met.workers:
        line.close()
    return met


def changed(card: Any, /, **change: Any) -> Any:
    return msgspec.structs.replace(card, **change)


ABSURD = [
    ("base", -1), ("base", 0), ("base", 1 << 62), ("base", 1 << 63), ("stride", 33), ("page", 31), ("count", 41),
    ("count", 0), ("count", 1 << 60), ("region", 9), ("region", -1), ("device", 1), ("base", "next"),
]  # fmt: skip


def absurd(card: WorkerCard, column: str, value: Any) -> WorkerCard:
    numbers = getattr(card, column)
    return changed(card, **{column: (numbers[1] if value == "next" else value, *numbers[1:])})


OWN = describe(0, PLAN, "run-d", 5, lie(PLAN.decode, 0), b"decode metadata")
HELLO = Hello(
    want="worker", nonce=b"n", name="decode-0", run="run-d", worker=0, model_digest=PLAN.model_digest, revision="",
    scales="", side=PLAN.decode.digest, key="d", plan=PLAN.digest, card=None, protocol=PROTOCOL,
)  # fmt: skip
CARD = answer_hello(
    Hello("engine", b"", "decode-0", "run-d", 0, "", "", "", "", "", "", None, PROTOCOL),
    local(addresses=("tcp://127.0.0.1:1",) * 2),
)
