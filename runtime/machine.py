"""The elements of cores: closed sets of words, facts, and state machines as tables, (phase, event) -> phase.

An event without an entry in the table raises an error; it is never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum
from typing import Any, Generic, TypeVar

from kvplan.runtime.errors import PhaseError

P = TypeVar("P", bound=IntEnum)
E = TypeVar("E", bound=Enum)


class TextEnum(StrEnum):
    """A closed set of words, which callers see as plain texts."""

    __repr__ = str.__repr__


class Facts:
    """A base for data that no step changes, so that copies of a core share it."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


@dataclass(frozen=True, slots=True)
class StateMachine(Generic[P, E]):
    """The transitions of the object called `name`. Its owner stores the phase, and changes it only with `after`."""

    name: str
    table: Mapping[tuple[P, E], P]

    def after(self, phase: P, event: E) -> P:
        """Return the phase after an event. Raises PhaseError if the table has none: a fault of kvplan."""
        if (after := self.table.get((phase, event))) is None:
            raise PhaseError(f"{self.name} that is {word(phase)} cannot be {word(event)}: report this")
        return after

    def takes(self, phase: P, event: E) -> bool:
        """Whether the table has this event in this phase. Callers check this before they act on a peer's message."""
        return (phase, event) in self.table


def word(member: Enum) -> str:
    """Return the name of a phase or an event, as messages and drawings show it."""
    return member.name.lower().replace("_", " ")
