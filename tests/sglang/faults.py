"""Faults of running engines. The current request must end in time: right, or with an error.

A fault yields what is wrong. Afterwards the next prompt has to be right, and both engines have given back all pages.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.sglang.cases import Fault
from tests.sglang.pair import PARTS, Pair, Part, drawn

LENGTHS = (600, 64, 37)
PROMPTS = drawn(LENGTHS, seed=2)
RIGHT, FAILED, WRONG_TOKENS = "right", "failed", "other tokens"
EITHER = (RIGHT, FAILED)
# Seconds between asking and what happens, from before a chunk is computed to after the last token.
STAGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4)
Wanted = Sequence[Mapping[str, Any]]


def suffered(pair: Pair, wanted: Wanted) -> list[str]:
    """Run the fault of the pair's case and return the problems after it; `wanted` are the answers to PROMPTS."""
    assert pair.case.fault is not None
    problems = [*FAULTS[pair.case.fault](pair, wanted)]
    problems += [f"the next one is {found}: {pair.error}" for found in _through(pair, wanted, 1) if found != RIGHT]
    return [*problems, *(taken for part in PARTS if (taken := pair.idle(part)))]


def prefill_killed(pair: Pair, wanted: Wanted) -> Iterator[str]:
    """Prefill gets a request and ends before it has computed anything."""
    yield from _through_stopped(pair, wanted, "prefill", (FAILED,), kill=True)


def prefill_killed_later(pair: Pair, wanted: Wanted) -> Iterator[str]:
    for stage in STAGES:
        _, number = pair.both(PROMPTS[0])
        time.sleep(stage)
        pair.engines["prefill"].stop()
        yield from _unless(pair, "decode", number, wanted[0], EITHER, f"{stage:g} s")
        pair.restart("prefill")


def decode_killed(pair: Pair, wanted: Wanted) -> Iterator[str]:
    """No decode engine asks for a hold of prefill, so that its lease ends."""
    yield from _through_stopped(pair, wanted, "decode", (FAILED,), kill=True)


def decode_killed_later(pair: Pair, wanted: Wanted) -> Iterator[str]:
    for stage in STAGES:
        number, _ = pair.both(PROMPTS[0])
        time.sleep(stage)
        pair.engines["decode"].stop()
        yield from _unless(pair, "prefill", number, None, EITHER, f"{stage:g} s")
        pair.restart("decode")


def prefill_restarted(pair: Pair, wanted: Wanted) -> Iterator[str]:
    yield from _through(pair, wanted, 2, but=RIGHT)
    pair.restart("prefill")


def decode_restarted(pair: Pair, wanted: Wanted) -> Iterator[str]:
    yield from _through(pair, wanted, 2, but=RIGHT)
    pair.restart("decode")


def prefill_frozen(pair: Pair, wanted: Wanted) -> Iterator[str]:
    """For less than a request may take."""
    yield from _through_stopped(pair, wanted, "prefill", EITHER, seconds=2)


def prefill_frozen_long(pair: Pair, wanted: Wanted) -> Iterator[str]:
    yield from _through_stopped(pair, wanted, "prefill", (FAILED,), seconds=12)


def decode_frozen(pair: Pair, wanted: Wanted) -> Iterator[str]:
    yield from _through_stopped(pair, wanted, "decode", EITHER, seconds=2)


def decode_frozen_long(pair: Pair, wanted: Wanted) -> Iterator[str]:
    """For longer than the lease: prefill gives its pages to other requests, and decode must not read them."""
    yield from _through_stopped(pair, wanted, "decode", (FAILED,), seconds=12)


def prefill_frozen_later(pair: Pair, wanted: Wanted) -> Iterator[str]:
    """While it may be writing, or read from, for longer than a request may take."""
    for stage in STAGES[1:]:
        numbers = dict(zip(PARTS, pair.both(PROMPTS[0]), strict=True))
        time.sleep(stage)
        _frozen(pair, "prefill", 12)
        yield from _unless(pair, "decode", numbers["decode"], wanted[0], EITHER, f"{stage:g} s")
        yield from _unless(pair, "prefill", numbers["prefill"], None, EITHER, f"{stage:g} s")


def aborted(pair: Pair, wanted: Wanted, *parts: Part) -> Iterator[str]:
    for stage in STAGES:
        numbers = dict(zip(PARTS, pair.both(PROMPTS[0]), strict=True))
        time.sleep(stage)
        for part in parts:
            pair.engines[part].ask(abort=numbers[part])
        yield from _unless(pair, "decode", numbers["decode"], wanted[0], EITHER, f"{stage:g} s")
        yield from _unless(pair, "prefill", numbers["prefill"], None, EITHER, f"{stage:g} s")


def decode_aborts(pair: Pair, wanted: Wanted) -> Iterator[str]:
    yield from aborted(pair, wanted, "decode")


def prefill_aborts(pair: Pair, wanted: Wanted) -> Iterator[str]:
    yield from aborted(pair, wanted, "prefill")


def both_abort(pair: Pair, wanted: Wanted) -> Iterator[str]:
    yield from aborted(pair, wanted, "prefill", "decode")


def decode_never_asked(pair: Pair, wanted: Wanted) -> Iterator[str]:
    number = pair.ask("prefill", PROMPTS[0], pair.room())
    yield from _unless(pair, "prefill", number, None, (FAILED,))


def prefill_never_asked(pair: Pair, wanted: Wanted) -> Iterator[str]:
    number = pair.ask("decode", PROMPTS[0], pair.room())
    yield from _unless(pair, "decode", number, wanted[0], (FAILED,))


def aborted_alone(pair: Pair, wanted: Wanted) -> Iterator[str]:
    """An engine gives up what the other one was never asked for."""
    for part in PARTS:
        number = pair.ask(part, PROMPTS[0], pair.room())
        time.sleep(0.5)
        pair.engines[part].ask(abort=number)
        yield from _unless(pair, part, number, wanted[0], (FAILED,))


def same_room(pair: Pair, wanted: Wanted) -> Iterator[str]:
    """Put two prompts in one room, which a router never does: neither may get the pages of the other."""
    room = pair.room()
    numbers = [(pair.ask("prefill", ids, room), pair.ask("decode", ids, room)) for ids in PROMPTS[:2]]
    for (first, second), want in zip(numbers, wanted, strict=False):
        yield from _unless(pair, "prefill", first, None, EITHER)
        yield from _unless(pair, "decode", second, want, EITHER)


FAULTS: Mapping[Fault, Callable[[Pair, Wanted], Iterator[str]]] = {
    Fault.PREFILL_KILLED: prefill_killed,
    Fault.PREFILL_KILLED_LATER: prefill_killed_later,
    Fault.PREFILL_FROZEN: prefill_frozen,
    Fault.PREFILL_FROZEN_LONG: prefill_frozen_long,
    Fault.PREFILL_FROZEN_LATER: prefill_frozen_later,
    Fault.PREFILL_RESTARTED: prefill_restarted,
    Fault.DECODE_KILLED: decode_killed,
    Fault.DECODE_KILLED_LATER: decode_killed_later,
    Fault.DECODE_FROZEN: decode_frozen,
    Fault.DECODE_FROZEN_LONG: decode_frozen_long,
    Fault.DECODE_RESTARTED: decode_restarted,
    Fault.DECODE_ABORTS: decode_aborts,
    Fault.PREFILL_ABORTS: prefill_aborts,
    Fault.BOTH_ABORT: both_abort,
    Fault.ABORTED_ALONE: aborted_alone,
    Fault.DECODE_NEVER_ASKED: decode_never_asked,
    Fault.PREFILL_NEVER_ASKED: prefill_never_asked,
    Fault.SAME_ROOM: same_room,
}


def _through_stopped(
    pair: Pair, wanted: Wanted, part: Part, allowed: Sequence[str], *, kill: bool = False, seconds: float = 1
) -> Iterator[str]:
    """Ask while an engine does not run; then it is killed and started again, or goes on."""
    other: Part = "decode" if part == "prefill" else "prefill"
    pair.engines[part].signal(signal.SIGSTOP)
    numbers = dict(zip(PARTS, pair.both(PROMPTS[0]), strict=True))
    time.sleep(seconds)
    if kill:
        pair.restart(part)
    else:
        pair.engines[part].signal(signal.SIGCONT)
        yield from _unless(pair, part, numbers[part], wanted[0] if part == "decode" else None, EITHER)
    yield from _unless(pair, other, numbers[other], wanted[0] if other == "decode" else None, allowed)


def _frozen(pair: Pair, part: Part, seconds: float) -> None:
    pair.engines[part].signal(signal.SIGSTOP)
    time.sleep(seconds)
    pair.engines[part].signal(signal.SIGCONT)


def _through(pair: Pair, wanted: Wanted, prompt: int, but: str = "") -> Iterator[str]:
    """Yield the outcome of a prompt at decode, unless it is the expected one."""
    _, number = pair.both(PROMPTS[prompt])
    found = _outcome(pair, pair.answers("decode", number)[0], wanted[prompt])
    if found != but:
        yield found


def _unless(
    pair: Pair, part: Part, number: int, want: Mapping[str, Any] | None, allowed: Sequence[str], when: str = ""
) -> Iterator[str]:
    """Yield the outcome of a request unless it is allowed. Without `want`, its tokens are not compared."""
    found = _outcome(pair, pair.answers(part, number)[0], want)
    pair.seen[f"{part} {found}"] += 1
    if found not in allowed:
        yield f"{part} {found}, not {' or '.join(allowed)}{f' ({when})' if when else ''}"


def _outcome(pair: Pair, found: Mapping[str, Any], want: Mapping[str, Any] | None) -> str:
    pair.error = str(found.get("error") or "")
    if pair.error:
        return FAILED
    if want is None or pair.alike(want, found):
        return RIGHT
    return "partial" if found.get("tokens") == want["tokens"][: len(found.get("tokens") or [])] else WRONG_TOKENS
