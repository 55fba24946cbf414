"""Real engines, judged token by token: `python -m tests.vllm [WORDS…]` runs the cases whose names have all the words.

Writes what it saw into docs/vllm.md. Ends with 1 where kvplan is not as it should be, with 0 where there is no vLLM.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.vllm import environment, mistakes, play, serve, table, times
from tests.vllm.cases import CASES, Case, Connector, Mistake, Served, Setup
from tests.vllm.judge import Outcome
from tests.vllm.pair import Pair
from tests.vllm.process import EngineLost, Launcher
from tests.vllm.requests import meet

STOPPED = {EngineLost: "did not start", TimeoutError: "hung"}
CONNECTORS = {"kvplan": [Connector.KVPLAN], "nixl": [Connector.NIXL], "both": list(Connector)}


def main(arguments: Sequence[str]) -> int:
    options = read(arguments)
    try:
        python = environment.ready()
    except environment.UnavailableError as reason:
        print(f"skipped: {reason}")
        return 0
    folder = Path(tempfile.mkdtemp(prefix="kvplan-vllm-"))
    bad = []
    with Launcher(python, folder) as launcher:
        for connector in CONNECTORS[options.connector]:
            for case, outcome in run(launcher, selected(options), connector):
                table.write({(case.name, connector): outcome.word})
                bad += [case.name] if connector is Connector.KVPLAN and not outcome.as_wanted else []
                report(case, connector, outcome)
        if options.times:
            table.write({}, times.measured(launcher, list(Connector)))
    print(f"logs are in {folder}" + (f"; kvplan is not as it should be in: {', '.join(bad)}" if bad else ""))
    return int(bool(bad))


def read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.vllm", description=__doc__)
    parser.add_argument("words", nargs="*", help="run the cases whose names have all of them")
    parser.add_argument("--connector", choices=CONNECTORS, default="both")
    parser.add_argument("--smallest", action="store_true", help="what CI runs")
    parser.add_argument("--times", action="store_true", help="measure the time to the first token, too")
    return parser.parse_args(arguments)


def selected(options: argparse.Namespace) -> list[Case]:
    return [
        case
        for case in CASES
        if all(word in case.name for word in options.words) and (case.smallest or not options.smallest)
    ]


def run(launcher: Launcher, cases: Sequence[Case], connector: Connector) -> Iterator[tuple[Case, Outcome]]:
    """Each case that is for the connector; those of one setup on the same engines."""
    by_setup: dict[tuple[Setup, bool], list[Case]] = {}
    for case in cases:
        if connector in case.connectors:
            by_setup.setdefault((case.setup, isinstance(case.play, Served)), []).append(case)
    for (_, served), group in by_setup.items():
        yield from serve.run_cases(launcher, group) if served else run_setup(launcher, group, connector)


def run_setup(launcher: Launcher, cases: Sequence[Case], connector: Connector) -> Iterator[tuple[Case, Outcome]]:
    """Cases of one setup; where an engine is not as it was after one of them, the next has new ones."""
    pair: Pair | None = None
    try:
        for case in cases:
            if isinstance(case.play, Mistake):
                yield case, mistakes.run(launcher, case, connector)
                continue
            try:
                pair = pair or started(launcher, case.setup, connector)
            except (EngineLost, TimeoutError) as error:
                yield case, Outcome(stopped=f"{STOPPED[type(error)]}: {last_line(error)}")
                continue
            outcome = play.run(pair, case)
            if outcome.stopped or outcome.leaked:
                pair.close()
                pair = None
            yield case, outcome
    finally:
        if pair:
            pair.close()


def started(launcher: Launcher, setup: Setup, connector: Connector) -> Pair:
    """Engines that have met. Raises EngineLost, TimeoutError."""
    pair = Pair(launcher, setup, connector)
    try:
        meet(pair)
    except BaseException:
        pair.close()
        raise
    return pair


def last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1][:200]


def report(case: Case, connector: Connector, outcome: Outcome) -> None:
    notes = [f"{answer.verdict.value}: {answer.note}" for answer in outcome.answers if answer.note]
    state = "" if outcome.as_wanted else "  <- not as it should be"
    print(f"{time.strftime('%X')} {connector.value}: {case.name}: {outcome.word}{state}", flush=True)
    for note in dict.fromkeys(notes):
        print(f"    {note}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
