"""Random walks through the protocol: any step at any time, holds and asks more often."""

from __future__ import annotations

from collections.abc import Callable

from tests.runtime.model.protocol import BOTH, LEASE, Hold, Protocol

from kvplan.plan.errors import KvplanError

NAMES = ("r", "s")
GROUPS = (BOTH, BOTH, ("kv",), (), None)


def walk(model: Protocol, turns: int) -> None:
    """So many random steps, and then an end."""
    for _ in range(turns):
        name, step = model.draw.choice(STEPS)
        model.steps.append(name)
        step(model)
        model.poll_decode()
    model.rest()


def _hold(model: Protocol) -> None:
    draw = model.draw
    begin = draw.choice((model.hold, model.open))
    hold = begin(draw.choice(NAMES), draw.choice(GROUPS), draw.random() < 0.15)
    if hold is not None and hold.streamed and draw.random() < 0.5:
        model.offer_all(hold)


def _hold_late(model: Protocol) -> None:
    model.hold_late(model.draw.choice(NAMES), model.draw.choice(GROUPS))


def _offer(model: Protocol) -> None:
    if (hold := _some(model)) is not None and hold.streamed:
        model.offer(hold, model.draw.randrange(len(model.prefill)))


def _ask(model: Protocol) -> None:
    """For the last hold of a name or, as often, for any that decode was told of before."""
    if (hold := _some(model)) is not None:
        streamed = model.draw.random() < 0.5
        model.ask(hold, streamed, told=not streamed or model.draw.random() < 0.7)


def _some(model: Protocol) -> Hold | None:
    return model.draw.choice(model.holds[-4:]) if model.holds else None


def _cancel(model: Protocol) -> None:
    for ask in model.asks[-1:]:
        ask.transfer.cancel()


def _drop(model: Protocol) -> None:
    if model.decode.peers():
        model.decode.drop("prefill")


def _meet(model: Protocol) -> None:
    try:
        model.connect()
    except KvplanError:
        assert model.net.full


def _full(model: Protocol) -> None:
    """Lines take no more, now and then."""
    model.net.full = model.draw.choice((0.0, 0.0, 0.4))


def _rounds(model: Protocol) -> None:
    model.rounds(3)


def _poll(model: Protocol) -> None:
    model.poll_prefill(model.draw.randrange(len(model.prefill)))


STEPS: list[tuple[str, Callable[[Protocol], None]]] = [
    *[("hold", _hold)] * 4,
    ("hold late", _hold_late),
    *[("ask", _ask)] * 5,
    *[("offer", _offer)] * 4,
    *[("rounds", _rounds)] * 6,
    *[("poll prefill", _poll)] * 4,
    *[("release", Protocol.release)] * 2,
    *[("lapse", Protocol.lapse)] * 2,
    ("tick", lambda model: model.tick(model.draw.choice((0.1, 1.0, LEASE / 2)))),
    ("withdraw", lambda model: model.withdraw(model.draw.choice(NAMES))),
    ("cancel", _cancel),
    ("drop", _drop),
    *[("meet", _meet)] * 2,
    ("full", _full),
]
