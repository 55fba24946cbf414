"""Aborts at a stage that a request has by name: what is done so that it stands there, and what has to come of it.

An engine that is told to stand still answers other workers and steps no model: a hold that was not ordered yet is
waited for, a load that has arrived is not scheduled. Stages of decode are seen on its transfer (watch.py).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping

from tests.vllm.cases import Stage
from tests.vllm.judge import Answer, Verdict
from tests.vllm.process import Word
from tests.vllm.requests import REMOTE_DECODE, Asker, name

TOKENS = 400
TRIES = 20  # for a stage that lasts no longer than bytes move


def aborted_at(asker: Asker, stage: Stage, length: int) -> Iterator[Answer]:
    """Have a request aborted there. If the abort must do nothing, the request has to be right."""
    yield from STAGES[stage](asker, stage, length)


def on_prefill(asker: Asker, stage: Stage, length: int) -> Iterator[Answer]:
    """Aborted before it has ended: after no step, or after the first of several chunks."""
    words: Word = {"id": name(), "prompt": asker.prompt(length), "salt": asker.salt, "kv": REMOTE_DECODE}
    answer = asker.pair.prefill.call("generate", **words, tokens=1, abort_after=int(stage is Stage.CHUNK))
    yield met(answer["reason"] == "aborted", stage)


def held(asker: Asker, stage: Stage, length: int) -> Iterator[Answer]:
    """A client that leaves once prefill has answered changes nothing."""
    text, request = asker.prompt(length), name()
    answer = asker.held(text, request)
    if stage is Stage.HELD:
        asker.pair.prefill.call("abort", id=request)
        yield asker.finish(asker.start(answer, text, 16, request), text, 16, request)
        return
    number = asker.start(answer, text, 16, request)
    asker.pair.prefill.call("abort", id=request)
    yield asker.finish(number, text, 16, request)


def meeting(asker: Asker, stage: Stage, length: int) -> Iterator[Answer]:
    """Decode is new, and prefill does not answer."""
    asker.pair.restart("decode")
    text = asker.prompt(length)
    answer = asker.held(text, name())
    asker.pair.prefill.signal(signal.SIGSTOP)
    try:
        yield met(aborted(asker, answer, text, stage), stage)
    finally:
        asker.pair.prefill.signal(signal.SIGCONT)


def waiting_for_hold(asker: Asker, stage: Stage, length: int) -> Iterator[Answer]:
    """Prefill has answered, and its worker is not told to hold before it steps again."""
    text = asker.prompt(length)
    number = asker.start_prefill(text, name(), stands=True)
    answer = asker.pair.prefill.answer(number)
    try:
        yield met(aborted(asker, answer, text, stage), stage)
    finally:
        asker.pair.prefill.call("go")


def on_decode(asker: Asker, stage: Stage, length: int) -> Iterator[Answer]:
    """Abort at a stage of decode; try again if the stage was over before it was seen."""
    for _ in range(TRIES):
        text = asker.prompt(length)
        if aborted(asker, asker.held(text, name()), text, stage):
            yield met(True, stage)
            return
    yield met(False, stage)


def aborted(asker: Asker, held: Word, text: list[int], stage: Stage) -> bool:
    """Whether decode's request was aborted at the stage, and not after it."""
    words: Word = {"id": name(), "prompt": text, "salt": asker.salt, "kv": held["kv"], "tokens": TOKENS}
    return bool(asker.pair.decode.call("generate", **words, abort_at=stage.name)["reached"])


def met(reached: bool, stage: Stage) -> Answer:
    return Answer(Verdict.RIGHT if reached else Verdict.WRONG, note="" if reached else f"not met: {stage.value}")


STAGES: Mapping[Stage, Callable[[Asker, Stage, int], Iterator[Answer]]] = {
    Stage.QUEUED: on_prefill,
    Stage.CHUNK: on_prefill,
    Stage.HELD: held,
    Stage.BEING_READ: held,
    Stage.MEETING: meeting,
    Stage.WAITING_FOR_HOLD: waiting_for_hold,
    Stage.BEING_LOADED: on_decode,
    Stage.LOADED: on_decode,
    Stage.RUNNING: on_decode,
}
