"""Processes that are told and asked: they answer, freeze, die, and no wait is without end."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.cluster.process import Lost, Process, overlap
from tests.cluster.setting import Setting, plain, setting


@pytest.fixture
def process() -> Iterator[Process]:
    made = Process(plain(Setting("decode", nixl=False)))
    yield made
    made.close()


def test_a_setting_travels_whole() -> None:
    one = Setting("prefill", 3, limits={"requests": 4}, odds={"slow": 0.5})
    assert setting(plain(one)) == one


def test_a_process_answers_and_says_what_crashed_in_it(process: Process) -> None:
    assert process.call("stats")["requests"] == []
    assert process.call("audit")["changed"] == {"kv": [], "state": []}
    refused = process.call("connect", address="nowhere", timeout=0.1)
    assert (refused["ok"], refused["code"][:1]) == (False, "R")
    assert process.call("nonsense")["code"] == "crash"
    assert [word["event"] for word in process.events()] == ["up"]


def test_a_frozen_process_answers_when_it_is_thawed(process: Process) -> None:
    process.call("stats")
    process.freeze()
    assert not process.up
    with pytest.raises(Lost, match="no answer in"):
        process.call("stats", seconds=0.2)
    process.thaw()
    assert process.call("stats")["ok"]
    (start, end), now = process.frozen[0], time.monotonic()
    assert overlap(process.frozen, 0, now) == pytest.approx(end - start)
    assert overlap(process.frozen, end, now) == 0


def test_a_dead_process_is_lost_at_once(process: Process) -> None:
    process.call("stats")
    process.kill()
    with pytest.raises(Lost):
        process.call("stats", seconds=1000)
