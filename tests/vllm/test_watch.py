"""Stages of a load are told apart as the runtime's transfer shows them, and one that is over is not waited for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.vllm.cases import Stage
from tests.vllm.watch import ORDER, reached, stage_of, transfer_of

from kvplan.runtime.protocol.phases import Phase


def transfer(*phases: Phase, not_held: bool = False, ended: bool = False) -> SimpleNamespace:
    parts = tuple(SimpleNamespace(phase=phase, not_held=not_held) for phase in phases)
    return SimpleNamespace(parts=parts, ended=ended, error=None)


@pytest.mark.parametrize(
    ("load", "stage"),
    [
        (transfer(), "MEETING"),
        (transfer(Phase.CLAIMING, not_held=True), "WAITING_FOR_HOLD"),
        (transfer(Phase.CLAIMING), ""),
        (transfer(Phase.MOVING, Phase.CLAIMING), "BEING_LOADED"),
        (transfer(Phase.ARRIVED), ""),
        (transfer(Phase.CONFIRMED, ended=True), "LOADED"),
    ],
)
def test_a_load_is_at_a_stage_or_between_two(load: SimpleNamespace, stage: str) -> None:
    assert stage_of(load) == stage


def test_a_stage_that_is_over_is_not_waited_for() -> None:
    assert not reached(transfer(Phase.CONFIRMED, ended=True), "BEING_LOADED")


def test_a_load_that_failed_has_not_arrived() -> None:
    failed = transfer(Phase.LEFT, ended=True)
    failed.error = RuntimeError()
    assert not reached(failed, "LOADED")


def test_a_load_is_found_by_the_name_that_its_client_gave() -> None:
    load = transfer()
    decode = SimpleNamespace(_loads={"request7-0a1b2c3d": load})
    connector = SimpleNamespace(_worker=SimpleNamespace(_decode=decode))
    assert transfer_of(connector, "request7") is load
    assert transfer_of(connector, "request") is None


def test_watched_stages_are_stages() -> None:
    assert set(ORDER) <= {stage.name for stage in Stage}
