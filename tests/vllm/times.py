"""Time to the first token of decode by both connectors, whose requests take turns: a slow minute hits both."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median

from tests.vllm.cases import QWEN, Connector
from tests.vllm.pair import Pair
from tests.vllm.process import Launcher
from tests.vllm.requests import Asker, name

LENGTH, ROUNDS, WARM = 300, 40, 5
LOADS = {"idle": 1, "16 at once": 16}


def measured(launcher: Launcher, connectors: Sequence[Connector]) -> list[list[str]]:
    """Rows of the table: for each load the medians, and the first connector's against the last one's."""
    with ExitStack() as stack:
        pairs = [Pair(launcher, QWEN, connector) for connector in connectors]
        for pair in pairs:
            stack.callback(pair.close)
        head = ["time to first token", *(connector.value for connector in connectors), "ratio"]
        return [head, *(row(label, pairs, many) for label, many in LOADS.items())]


def row(label: str, pairs: Sequence[Pair], many: int) -> list[str]:
    askers = [Asker(pair, f"times {label}") for pair in pairs]
    rounds = WARM + max(4, ROUNDS // many)
    seconds = [[first_token(asker, many) for asker in askers] for _ in range(rounds)][WARM:]
    medians = [median(column) for column in zip(*seconds, strict=True)]
    ratio = medians[0] / medians[-1]
    return [label, *(f"{1e3 * value:.1f} ms" for value in medians), f"{ratio:.2f}"]


def first_token(asker: Asker, many: int) -> float:
    """The median of the seconds that `many` requests at once wait on decode, once prefill holds them all."""
    texts = {name(): asker.prompt(LENGTH) for _ in range(many)}
    asked = {request: asker.start_prefill(text, request) for request, text in texts.items()}
    held = {request: asker.pair.prefill.answer(number) for request, number in asked.items()}
    started = [asker.start(held[request], text, 1, request) for request, text in texts.items()]
    return median([asker.pair.decode.answer(number)["first_s"] for number in started])
