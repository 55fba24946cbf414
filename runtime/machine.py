"""What cores are made of: closed sets of words, facts, and state machines as tables, (phase, event) -> phase.

An event that a table does not have is refused, never done in silence.
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
    """Words of a closed set, which callers see as the texts that they are."""

    __repr__ = str.__repr__


class Facts:
    """What no step changes: copies of a core share it."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self


@dataclass(frozen=True, slots=True)
class StateMachine(Generic[P, E]):
    """All transitions of what is called `name`. Its owner keeps the phase, and changes it by `after` alone."""

    name: str
    table: Mapping[tuple[P, E], P]

    def after(self, phase: P, event: E) -> P:
        """The phase that an event leads to. Raises PhaseError where there is none: a fault of kvplan's own."""
        if (after := self.table.get((phase, event))) is None:
            raise PhaseError(f"{self.name} that is {word(phase)} cannot be {word(event)}: report this")
        return after

    def takes(self, phase: P, event: E) -> bool:
        """Whether an event has a place in a phase: to be asked before a peer's word becomes one."""
        return (phase, event) in self.table


def word(member: Enum) -> str:
    """A phase or an event as messages and drawings have it."""
    return member.name.lower().replace("_", " ")
