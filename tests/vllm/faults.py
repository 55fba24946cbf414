"""Faults of running engines. The current request must end: by the policy, or right."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from tests.vllm.cases import Fault
from tests.vllm.judge import Answer, Verdict
from tests.vllm.process import Word
from tests.vllm.requests import Asker, name

LENGTH, TOKENS = 900, 16


def prefill_killed(asker: Asker) -> Iterator[Answer]:
    text, request, held = hold(asker)
    asker.pair.prefill.kill()
    number = asker.start(held, text, TOKENS, request)
    yield by_policy(asker, asker.finish(number, text, TOKENS, request), or_right=False)
    asker.pair.restart("prefill")


def prefill_killed_in_load(asker: Asker) -> Iterator[Answer]:
    text, request, held = hold(asker)
    number = asker.start(held, text, TOKENS, request)
    asker.pair.prefill.kill()
    yield by_policy(asker, asker.finish(number, text, TOKENS, request))
    asker.pair.restart("prefill")


def decode_killed(asker: Asker) -> Iterator[Answer]:
    """No engine is left to ask; the blocks on prefill come back when the lease ends."""
    text, request, held = hold(asker)
    asker.start(held, text, TOKENS, request)
    asker.pair.decode.kill()
    asker.pair.restart("decode")
    yield from ()


def prefill_frozen(asker: Asker) -> Iterator[Answer]:
    text, request, held = hold(asker)
    asker.pair.prefill.signal(signal.SIGSTOP)
    try:
        number = asker.start(held, text, TOKENS, request)
        yield by_policy(asker, asker.finish(number, text, TOKENS, request))
    finally:
        asker.pair.prefill.signal(signal.SIGCONT)


def decode_frozen(asker: Asker) -> Iterator[Answer]:
    """While decode sleeps its lease ends, and prefill fills its whole pool with other prompts."""
    text, request, held = hold(asker)
    number = asker.start(held, text, TOKENS, request)
    asker.pair.decode.signal(signal.SIGSTOP)
    try:
        time.sleep(asker.pair.setup.lease_s + 2)
        for _ in range(asker.pair.setup.prefill.blocks * (asker.pair.setup.prefill.block or 32) // LENGTH + 1):
            asker.learn("prefill", asker.prompt(LENGTH))
    finally:
        asker.pair.decode.signal(signal.SIGCONT)
    yield by_policy(asker, asker.finish(number, text, TOKENS, request))


def never_fetched(asker: Asker) -> Iterator[Answer]:
    hold(asker)
    yield from ()


FAULTS: Mapping[Fault, Callable[[Asker], Iterator[Answer]]] = {
    Fault.PREFILL_KILLED: prefill_killed,
    Fault.PREFILL_KILLED_IN_LOAD: prefill_killed_in_load,
    Fault.DECODE_KILLED: decode_killed,
    Fault.PREFILL_FROZEN: prefill_frozen,
    Fault.DECODE_FROZEN: decode_frozen,
    Fault.NEVER_FETCHED: never_fetched,
}


def hold(asker: Asker) -> tuple[list[int], str, Word]:
    """A prompt that prefill holds: its text, its name, prefill's answer."""
    text, request = asker.prompt(LENGTH), name()
    return text, request, asker.held(text, request)


def by_policy(asker: Asker, answer: Answer, or_right: bool = True) -> Answer:
    """`answer` with the endings that the policy allows; where the load may have been faster, right is one of them."""
    policy = Verdict.RIGHT if asker.pair.setup.policy == "recompute" else Verdict.REFUSED
    return replace(answer, allowed=frozenset({policy, Verdict.RIGHT} if or_right else {policy}))
