"""The drawings of docs/runtime.md: state machines and errors as they are now. Run as a program it writes them there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import Any

from tests.paths import ROOT

from kvplan.runtime import errors
from kvplan.runtime.errors import KvplanError
from kvplan.runtime.machine import StateMachine, word
from kvplan.runtime.protocol.phases import TRANSFER
from kvplan.runtime.protocol.writes import WRITE

PAGE = ROOT / "docs" / "runtime.md"
DRAWING = re.compile(r"(<!-- drawing: (\w+) -->\n).*?(<!-- end of drawing -->)", re.DOTALL)


def fresh(page: str) -> str:
    """`page` with everything between its marks drawn again. Raises KeyError for a drawing that there is not."""
    drawings: dict[str, StateMachine[Any, Any]] = {"transfer": TRANSFER, "write": WRITE}
    drawn = {name: fenced("mermaid", diagram(machine)) for name, machine in drawings.items()}
    drawn["errors"] = fenced("", "\n".join(tree(KvplanError)))
    return DRAWING.sub(lambda hit: f"{hit[1]}\n{drawn[hit[2]]}\n{hit[3]}", page)


def fenced(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```\n"


def diagram(machine: StateMachine[Any, Any]) -> str:
    """A state diagram: an arrow for each pair of phases, with the events that lead from one to the other."""
    arrows: dict[tuple[IntEnum, IntEnum], list[Enum]] = {}
    for (phase, event), after in machine.table.items():
        arrows.setdefault((phase, after), []).append(event)
    phases = list(dict.fromkeys(phase for pair in arrows for phase in pair))
    last = [phase for phase in phases if all(phase is not before for before, _ in arrows)]
    lines = ["stateDiagram-v2", f"    [*] --> {name(min(phases))}"]
    lines += [
        f"    {name(before)} --> {name(after)}: {', '.join(map(word, events))}"
        for (before, after), events in sorted(arrows.items())
    ]
    return "\n".join([*lines, *(f"    {name(phase)} --> [*]" for phase in last)])


def name(phase: Enum) -> str:
    return word(phase).replace(" ", "_")


def tree(kind: type[KvplanError], before: str = "") -> Iterator[str]:
    """An error and all that are one, by code."""
    yield f"{kind.__name__} {kind.code}"
    known = set(errors.BY_CODE.values())
    kinds = sorted(known & set(kind.__subclasses__()), key=lambda one: one.code)
    for one in kinds:
        last = one is kinds[-1]
        for number, line in enumerate(tree(one)):
            branch = "└─ " if last else "├─ "
            rest = "   " if last else "│  "
            yield f"{before}{rest if number else branch}{line}"


if __name__ == "__main__":
    PAGE.write_text(fresh(PAGE.read_text()))
