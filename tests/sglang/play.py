"""Carry out cases with real engines: tokens of a pair against those of one engine. Runs in SGLang's environment.

python -m tests.sglang.play FOLDER BACKEND NAME…      a line of JSON for each case: its name, and what became of it
"""

from __future__ import annotations

import json
import random
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.sglang.cases import CASES, GPU_CASES, Case, of_own
from tests.sglang.engine import EngineEndedError
from tests.sglang.faults import PROMPTS, WRONG_TOKENS, suffered
from tests.sglang.machines import CPU, GPU, Machine, imported
from tests.sglang.pair import Pair, Tokens, alike, drawn
from tests.sglang.table import OWN

# Ports of a pair: of its engines, one alone, and the bootstrap service; SGLang takes more behind them.
OFFSETS, PORTS = (0, 1, 2, 10), range(20000, 32000, 40)
UNRECOVERED = "does not recover"
COMPARED = "pools are as derived"
RIGHT, REFUSED, FAILED, WRONG, CRASHED, HANGS = "right", "refused", "failed", "wrong", "engine ended", "hangs"
Outcome = tuple[str, str]


def main(folder: Path, backend: str, names: Sequence[str]) -> None:
    chosen = [case for case in (*CASES, *GPU_CASES) if case.name in names]
    machine = GPU if chosen[0] in GPU_CASES else CPU
    if machine is CPU:
        imported()
    with Player(folder, backend, machine) as player:
        for case in chosen:
            word, why = player.play(of_own(case) if backend == OWN else case)
            print(json.dumps({"case": case.name, "word": word, "why": why, "first": player.first}), flush=True)


class Player:
    """Plays cases one by one. Engines that did well go on to the next case if it wants the same ones."""

    def __init__(self, folder: Path, backend: str, machine: Machine) -> None:
        self._folder, self._backend, self._machine = folder, backend, machine
        self._ports = free_ports()
        self._pair: Pair | None = None
        self._alone: dict[str, list[dict[str, Any]]] = {}
        self.first: list[float] = []

    def __enter__(self) -> Player:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def play(self, case: Case) -> Outcome:
        """A word, and why."""
        word, why = CRASHED, ""
        try:
            word, why = self._played(case)
        except EngineEndedError as error:
            why = str(error)
        except TimeoutError as error:
            word, why = HANGS, str(error)
        finally:
            self.first = self._pair.first if self._pair else []
            if word != RIGHT:
                self._stop()
        return word, why

    def _played(self, case: Case) -> Outcome:
        prompts = drawn(case.lengths) if case.fault is None else PROMPTS
        pair = self._fitting(case)
        pair.case, pair.first = case, []
        pair.seen.clear()
        expected = self._expected(pair, prompts) if prompts else []
        if case.stopped:
            return stopped(pair)
        if not pair.started:
            pair.start()
            if not prompts:
                return COMPARED, ""
            warm(pair)
        if case.fault is not None:
            wrong = suffered(pair, expected)
            word = RIGHT if not wrong else WRONG if any(WRONG_TOKENS in why for why in wrong) else UNRECOVERED
            return word, "; ".join([*wrong, ", ".join(f"{n} {w}" for w, n in pair.seen.items())])
        word, why = judged(case, expected * case.times, list(through(pair, prompts)), self._machine.gap)
        unsaid = case.logged not in pair.engines["decode"].log.read_text(errors="replace")
        return (WRONG, f"decode has not logged {case.logged!r}") if word == RIGHT and unsaid else (word, why)

    def _fitting(self, case: Case) -> Pair:
        """The pair that runs already, or a new one, which is not started."""
        if self._pair is None or engines_of(self._pair.case) != engines_of(case):
            self._stop()
            self._pair = Pair(self._folder, case, next(self._ports), self._backend, self._machine)
        return self._pair

    def _expected(self, pair: Pair, prompts: Sequence[Tokens]) -> list[dict[str, Any]]:
        key = f"{pair.case.model} {prompts}"
        if key not in self._alone:
            self._alone[key] = pair.alone(prompts)
        return self._alone[key]

    def _stop(self) -> None:
        if self._pair is not None:
            self._pair.stop()
        self._pair = None


def free_ports() -> Iterator[int]:
    """First ports of blocks that nobody listens at; runs beside each other begin anywhere."""
    every = list(PORTS)
    random.shuffle(every)
    return (port for port in every if all(_free(port + offset) for offset in OFFSETS))


def _free(port: int) -> bool:
    with closing(socket.socket()) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def engines_of(case: Case) -> Case:
    """A case without what says nothing of its engines."""
    return replace(case, name="", fault=None, refused="", lengths=(), times=1, together=False)


def stopped(pair: Pair) -> Outcome:
    """Refused if an engine does not start, and says why."""
    try:
        pair.start()
    except EngineEndedError as error:
        log = "".join(one.log.read_text(errors="replace") for one in pair.engines.values())
        return (REFUSED, "") if pair.case.stopped in log else (CRASHED, str(error))
    return WRONG, "both engines serve"


def warm(pair: Pair) -> None:
    """One prompt before all others, which compiles the plan, and for which the engines meet."""
    first, second = pair.both(drawn([20], seed=3)[0])
    pair.answers("decode", second)
    pair.answers("prefill", first)
    pair.first.clear()


def through(pair: Pair, prompts: list[Tokens]) -> Iterator[dict[str, Any]]:
    """The answers of decode. Both engines are asked at once, like by a router."""
    sent: list[Any] = [prompts] if pair.case.together else prompts * pair.case.times
    for ids in sent:
        first, second = pair.both(ids, len(ids) if pair.case.together else 0)
        yield from pair.answers("decode", second)
        pair.answers("prefill", first)


def judged(case: Case, expected: list[dict[str, Any]], found: list[dict[str, Any]], gap: float = CPU.gap) -> Outcome:
    """The outcome of a case: all requests are right, or all are refused for the reason that the case names."""
    errors = [one.get("error") or "" for one in found]
    if case.refused and found and all(case.refused in error for error in errors):
        return REFUSED, ""
    right = sum(alike(want, one, gap) for want, one in zip(expected, found, strict=False))
    if right == len(expected) == len(found) and not case.refused:
        return RIGHT, ""
    why = f"{right} of {len(expected)} right; {[error for error in errors if error][:1]}"
    return (FAILED if found and all(errors) else WRONG), why


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:])
