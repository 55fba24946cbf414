"""Effects: what goes into a protocol core, and what comes out of it for its worker to carry out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.ops.metrics import MessageKind


class Input(msgspec.Struct, frozen=True, eq=False):
    """Something that happened: a message, a command of the caller, or what came of an output."""


class Output(msgspec.Struct, frozen=True, eq=False):
    """Something that a worker has to do for its core."""


# Both roles


class Counted(Output, frozen=True, eq=False):
    """What the messages of a step were taken for, and how many of each kind there were."""

    kinds: Mapping[MessageKind, int]


@dataclass(slots=True, eq=False)
class StepOutputs:
    """What a core's state collects during a step: what is to be done, and what messages were taken for."""

    out: list[Output] = field(default_factory=list, init=False)
    heard: dict[MessageKind, int] = field(default_factory=dict, init=False)

    def count(self, kind: MessageKind) -> None:
        """A message of this step was taken for that."""
        self.heard[kind] = self.heard.get(kind, 0) + 1

    def take(self) -> list[Output]:
        """What is to be done because of the step, each once."""
        out, self.out = self.out, []
        if self.heard:
            out.append(Counted(self.heard))
            self.heard = {}
        return out


class Send(Output, frozen=True, eq=False):
    """Say a message to a peer. One that is `droppable` is left out while earlier ones wait for room in the line."""

    peer: Any
    message: msgspec.Struct
    droppable: bool = False


class Unsent(Input, frozen=True, eq=False):
    """A message that was to be sent was not, and why."""

    peer: Any
    message: msgspec.Struct
    error: KvplanError
