"""What the parts of the prefill core share: pins, sources, readers, and the outputs of the step that is under way."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kvplan.runtime.control.messages import ClaimAnswer, ClaimAnswers
from kvplan.runtime.ops.metrics import MessageKind
from kvplan.runtime.protocol.effects import Counted, Output, Send
from kvplan.runtime.protocol.leases import Leases
from kvplan.runtime.protocol.pins import NEVER
from kvplan.runtime.protocol.readers import Reader, Session
from kvplan.runtime.protocol.source import SourceRequest


@dataclass(slots=True)
class PrefillState:
    """Prefill worker number `worker`. It `lends` if buffers that are asked for now are lent in their turn.

    A claim is good for `lease` seconds. `now` is the time of the step, in seconds.
    """

    worker: int
    lease: float
    leases: Leases
    now: float = NEVER
    lends: bool = True
    sources: dict[str, SourceRequest] = field(default_factory=dict)
    sessions: dict[Reader, Session] = field(default_factory=dict)
    out: list[Output] = field(default_factory=list)
    heard: dict[MessageKind, int] = field(default_factory=dict)

    def send(self, reader: Reader, message: msgspec.Struct) -> None:
        """Say a message to a reader, unless it was dropped."""
        if reader in self.sessions:
            self.out.append(Send(reader, message))

    def answer(self, session: Session, *answers: ClaimAnswer) -> None:
        """Say what becomes of claims."""
        self.send(session.reader, ClaimAnswers(session.heartbeat, self.lease, answers, self.lends))

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
