"""State machines: what their tables say, who may change a phase, and the page that has them drawn."""

from __future__ import annotations

import ast
import re
from enum import Enum, IntEnum
from typing import Any

import pytest
from tests.paths import ROOT
from tests.runtime.page import DRAWING, PAGE, diagram, fresh, tree

from kvplan.runtime.errors import BY_CODE, KvplanError, PhaseError
from kvplan.runtime.machine import StateMachine
from kvplan.runtime.protocol.phases import RUNNING, TRANSFER, Event, Phase, refused
from kvplan.runtime.protocol.writes import WRITE, WriteEvent, WritePhase

MACHINES: list[tuple[StateMachine[Any, Any], type[IntEnum], type[Enum]]] = [
    (TRANSFER, Phase, Event),
    (WRITE, WritePhase, WriteEvent),
]


@pytest.mark.parametrize(("machine", "phases", "events"), MACHINES)
def test_every_phase_is_reached_and_every_event_has_a_place(
    machine: StateMachine[Any, Any], phases: type[IntEnum], events: type[Enum]
) -> None:
    assert {event for _, event in machine.table} == set(events)
    reached = {min(phases)}
    for _ in phases:
        reached |= {after for (phase, _), after in machine.table.items() if phase in reached}
    assert reached == set(phases)


@pytest.mark.parametrize(("machine", "phases", "events"), MACHINES)
def test_no_phase_is_left_backwards(machine: StateMachine[Any, Any], phases: type[IntEnum], events: type[Enum]) -> None:
    assert all(after >= phase for (phase, _), after in machine.table.items())


@pytest.mark.parametrize(("machine", "phases", "events"), MACHINES)
def test_what_a_table_does_not_have_is_an_error(
    machine: StateMachine[Any, Any], phases: type[IntEnum], events: type[Enum]
) -> None:
    pairs = [(phase, event) for phase in phases for event in events]
    assert len(machine.table) < len(pairs)
    for phase, event in pairs:
        assert machine.takes(phase, event) == ((phase, event) in machine.table)
        if machine.takes(phase, event):
            assert machine.after(phase, event) is machine.table[phase, event]
        else:
            with pytest.raises(PhaseError, match=f"{machine.name} that is"):
                machine.after(phase, event)


def test_a_transfer_is_done_by_one_way_only() -> None:
    """No worker is told before all is there, and none confirms what it was not told."""
    before = {Phase.CONFIRMED: Phase.TOLD, Phase.TOLD: Phase.ARRIVED, Phase.ARRIVED: Phase.MOVING}
    for phase, must in {**before, Phase.MOVING: Phase.CLAIMING}.items():
        assert {source for (source, _), after in TRANSFER.table.items() if after is phase} - {phase} == {must}
    assert all(TRANSFER.after(phase, Event.FAILED) is Phase.LEAVING for phase in RUNNING)
    assert {source for (source, _), after in TRANSFER.table.items() if after is Phase.LEFT} == {Phase.LEAVING}


def test_messages_that_have_no_place_are_too_early_or_said_before() -> None:
    assert [refused(phase, Event.CONFIRMED) for phase in RUNNING] == ["stale"] * 3 + ["duplicate"] * 2
    assert [refused(phase, Event.WRITTEN) for phase in RUNNING] == ["stale"] + ["duplicate"] * 4


def test_phases_are_changed_by_their_tables_only() -> None:
    """Nothing but a method `on` assigns a phase, and it assigns what the table says."""
    found = []
    for path in sorted((ROOT / "runtime").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [(function.name, ast.unparse(node)) for node in ast.walk(function) if assigns(node)]
    assert len(found) == len(MACHINES)
    for name, text in found:
        assert name == "on"
        assert re.fullmatch(r"self\.phase = (TRANSFER|WRITE)\.after\(self\.phase, event\)", text)


def assigns(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return any(isinstance(one, ast.Attribute) and one.attr == "phase" for one in targets)


def test_the_page_is_fresh() -> None:
    """`python -m tests.runtime.page` draws it again."""
    text = PAGE.read_text()
    assert [name for _, name, _ in DRAWING.findall(text)] == ["transfer", "write", "errors"]
    assert fresh(text) == text


def test_a_drawing_has_every_arrow_and_every_error() -> None:
    drawn = diagram(TRANSFER)
    for line in ("[*] --> claiming", "claiming --> moving: claimed", "moving --> arrived: arrived, written"):
        assert f"    {line}\n" in drawn
    assert drawn.endswith("    left --> [*]")
    assert drawn.count(": failed\n") == len(RUNNING)
    assert len(list(tree(KvplanError))) == len(BY_CODE)
