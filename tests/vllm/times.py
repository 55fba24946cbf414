"""The cost of connectors: requests of both take turns, so that a slow minute hits both.

While one connector is measured the engines of the other stand still: NixlConnector's use a core when idle. Time
to the first token on decode; the connector's part in a step that has nothing to load; CPU of an engine that idles.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from tests.vllm.cases import QWEN, Connector
from tests.vllm.pair import Pair
from tests.vllm.process import Launcher
from tests.vllm.requests import Asker, meet, name

LENGTH, ROUNDS, LEAST, WARM = 300, 40, 12, 5
IDLE_S, STEPS = 5.0, 400
LOADS = {"idle": 1, "16 at once": 16}


def measured(launcher: Launcher, connectors: Sequence[Connector]) -> list[list[str]]:
    """Rows of the table, a column for each connector."""
    with ExitStack() as stack:
        pairs = [Pair(launcher, QWEN, connector) for connector in connectors]
        for pair in pairs:
            stack.callback(pair.close)
            meet(pair)
        first = [row(f"time to the first token, {label}", pairs, many) for label, many in LOADS.items()]
        idle = ["CPU of an idle decode engine, of a core", *(f"{100 * idling(pair, pairs):.1f} %" for pair in pairs)]
        steps = [
            "the connector in a step that loads nothing",
            *(f"{1e6 * step(pair, pairs):.0f} µs" for pair in pairs),
        ]
        return [["", *(connector.value for connector in connectors)], *first, idle, steps]


@contextmanager
def alone(pair: Pair, pairs: Sequence[Pair]) -> Iterator[None]:
    """The engines of all other pairs stand still."""
    others = [engine for other in pairs if other is not pair for engine in other.engines.values()]
    for engine in others:
        engine.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for engine in others:
            engine.signal(signal.SIGCONT)


def idling(pair: Pair, pairs: Sequence[Pair]) -> float:
    """The part of a core that decode takes when nothing is asked of it."""
    with alone(pair, pairs):
        before = pair.decode.call("count")["cpu"]
        time.sleep(IDLE_S)
        return float(pair.decode.call("count")["cpu"] - before) / IDLE_S


def step(pair: Pair, pairs: Sequence[Pair]) -> float:
    """Seconds of a step of decode in its connector, the median while it computes a request of its own."""
    with alone(pair, pairs):
        pair.decode.call("watch")
        asker = Asker(pair, "steps")
        asker.alone(asker.prompt(32), tokens=STEPS)
        return float(pair.decode.call("steps")["connector_s"])


def row(label: str, pairs: Sequence[Pair], many: int) -> list[str]:
    askers = [Asker(pair, f"times {label}") for pair in pairs]
    rounds = WARM + max(LEAST, ROUNDS // many)
    seconds = [[first_token(asker, pairs, many) for asker in askers] for _ in range(rounds)][WARM:]
    medians = [median(column) for column in zip(*seconds, strict=True)]
    return [label, *(f"{1e3 * value:.1f} ms" for value in medians)]


def first_token(asker: Asker, pairs: Sequence[Pair], many: int) -> float:
    """The median of the seconds that `many` requests at once wait on decode, once prefill holds them all."""
    with alone(asker.pair, pairs):
        texts = {name(): asker.prompt(LENGTH) for _ in range(many)}
        asked = {request: asker.start_prefill(text, request) for request, text in texts.items()}
        held = {request: asker.pair.prefill.answer(number) for request, number in asked.items()}
        started = [asker.start(held[request], text, 1, request) for request, text in texts.items()]
        return median([asker.pair.decode.answer(number)["first_s"] for number in started])
