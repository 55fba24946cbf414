"""The dozen hardest cases over NIXL: prefill workers in two processes, decode workers in this one."""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.end_to_end.asking import requests
from tests.end_to_end.build import compiled, sides
from tests.end_to_end.hardest import HARDEST
from tests.end_to_end.memory import EMPTY, ids_of, refill, regions_of, wrong
from tests.end_to_end.worlds import SECONDS, STAGE, runtime_request, target
from tests.paths import ROOT
from tests.shares import later

from kvplan.runtime import Nixl, errors
from kvplan.runtime.transport.nixl import api

try:
    api()
except errors.NixlMissingError:
    pytest.skip("NIXL is not installed", allow_module_level=True)

PROCESSES = 2
WAYS = [("direct", "pull"), ("unpack", "pull"), ("pack", "push"), ("pack", "pull"), ("unpack", "push")]
CASES = [(name, *way) for name in HARDEST for way in WAYS]
# One way for every second, another one from case to case; `make test-all` has all, test_staged.py has them in memory.
NOW = [(name, *WAYS[number % len(WAYS)]) for number, name in enumerate([*HARDEST][::2])]
ASKED = ("cold", "prefix hit")


class Engine:
    """Processes that share out the prefill workers of whatever case they are asked for."""

    def __init__(self) -> None:
        paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        self.processes = [
            subprocess.Popen(
                [sys.executable, "-m", "tests.end_to_end.prefill_process", str(n), str(PROCESSES)],
                cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                text=True,
            )
            for n in range(PROCESSES)
        ]  # fmt: skip

    def tell(self, line: str) -> None:
        """One line to every process."""
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()

    def ask(self, line: str) -> list[str]:
        """One line to every process, and what each answers."""
        self.tell(line)
        return [self._line(process) for process in self.processes]

    def _line(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            assert selector.select(2 * SECONDS), "no word from a prefill process"
            return process.stdout.readline().strip()

    def stop(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
            process.stdout.close()


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.stop()


@pytest.mark.parametrize(("name", "strategy", "mode"), [*NOW, *later(case for case in CASES if case not in NOW)])
def test_every_byte(engine: Engine, name: str, strategy: str, mode: str) -> None:
    case = HARDEST[name]
    plan, both, asked = compiled(case, strategy), sides(case), requests(case)
    every = list(asked.values())
    ids, regions = max(ids_of(r.decode) for r in every), regions_of(both, every)
    mine = [
        target(plan, both[1], n, ids, lambda n: Nixl(n, telemetry=True), stage_bytes=STAGE)
        for n in range(len(both[1].workers))
    ]
    try:
        lines = [line.split() for line in engine.ask(f"case {strategy} {name}")]
        addresses = [lines[n % PROCESSES][n // PROCESSES] for n in range(len(both[0].workers))]
        engine.tell(f"addresses {' '.join(addresses)}")
        for reader, _ in mine:
            reader.connect(addresses[0], SECONDS, mode=mode)
        for request in ASKED:
            assert engine.ask(f"stamp {request}") == ["stamped"] * PROCESSES
            for reader, memory in mine:
                refill(memory, EMPTY)
                wanted = runtime_request(asked[request], request)
                done = reader.submit(wanted, SECONDS).wait()
                predicted = sum(reader.predict(wanted).values()) if mode == "pull" else 0
                assert done.descriptors == done.posted == predicted
                assert wrong(memory, regions, asked[request], plan.skipped) == []
            answers = engine.ask(f"finished {request}")
            assert answers == ["finished"] * PROCESSES
    finally:
        for reader, _ in mine:
            reader.close()
        engine.tell("end")
