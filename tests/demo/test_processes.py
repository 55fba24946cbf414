"""Worker processes: what they say arrives, and no fault of theirs makes the parent wait forever."""

from __future__ import annotations

import os
import time

import pytest

from kvplan.demo.processes import ProcessError, Processes, WorkerPipe

SOON = 20.0


def echo(line: WorkerPipe) -> None:
    line.say(line.listen(SOON) + 1)
    line.listen(SOON)


def fail(line: WorkerPipe) -> None:
    raise ValueError("no such page")


def die(line: WorkerPipe) -> None:
    os._exit(7)


def sleep(line: WorkerPipe) -> None:
    time.sleep(60)


def test_a_message_goes_there_and_back() -> None:
    with Processes() as crew:
        member = crew.start("echo", echo)
        member.tell(41)
        assert member.hear(time.monotonic() + SOON) == 42


@pytest.mark.parametrize(
    ("work", "seconds", "said"),
    [(fail, SOON, "ValueError: no such page"), (die, SOON, "exit code 7"), (sleep, 0.2, "before the deadline")],
)
def test_what_goes_wrong_is_named(work: object, seconds: float, said: str) -> None:
    with pytest.raises(ProcessError, match=said), Processes() as crew:
        crew.start("worker", work).hear(time.monotonic() + seconds)  # type: ignore[arg-type]


def test_no_process_outlives_its_crew() -> None:
    with Processes() as crew:
        member = crew.start("sleeper", sleep)
    assert not member.runner.is_alive()


def tell_often(member) -> None:
    for _ in range(100):
        member.tell(b"x" * 100_000)


def test_telling_a_dead_worker_is_an_error() -> None:
    with Processes() as crew:
        member = crew.start("dead", die)
        member.runner.join(SOON)
        with pytest.raises(ProcessError, match="ended with exit code 7"):
            tell_often(member)


def test_threads_speak_the_same_way() -> None:
    with Processes(threads=True) as crew:
        member, failing = crew.start("echo", echo), crew.start("failing", fail)
        member.tell(1)
        assert member.hear(time.monotonic() + SOON) == 2
        with pytest.raises(ProcessError, match="no such page"):
            failing.hear(time.monotonic() + SOON)
