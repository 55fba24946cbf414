"""The state that the parts of the prefill core share: holds, sources, readers, and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.messages import ClaimAnswer, ClaimAnswers, Failed
from kvplan.runtime.protocol.effects import Outputs, Send
from kvplan.runtime.protocol.holds import LONG_AGO
from kvplan.runtime.protocol.leases import Leases
from kvplan.runtime.protocol.readers import Reader, Session
from kvplan.runtime.protocol.source import SourceRequest


@dataclass(slots=True)
class PrefillState(Outputs):
    """The state of prefill worker number `worker`. `lends` says whether buffers asked for now are lent in their turn.

    A promise lasts `lease` seconds. `now` is the time in seconds.
    """

    worker: int
    lease: float
    leases: Leases
    now: float = LONG_AGO
    lends: bool = True
    sources: dict[str, SourceRequest] = field(default_factory=dict)
    sessions: dict[Reader, Session] = field(default_factory=dict)

    def send(self, reader: Reader, message: msgspec.Struct) -> None:
        """Send a message to a reader, unless it was dropped."""
        if reader in self.sessions:
            self.out.append(Send(reader, message))

    def fail(self, reader: Reader, request: str, error: KvplanError, attempt: int | None = None) -> None:
        """Notify a reader, unless it was dropped, that a request or its Done of an `attempt` has failed."""
        if (session := self.sessions.get(reader)) is not None:
            self.send(reader, Failed(request, error.code, str(error), session.heartbeat, attempt))

    def answer(self, session: Session, *answers: ClaimAnswer) -> None:
        """Send a reader the answers to its claims."""
        self.send(session.reader, ClaimAnswers(session.heartbeat, self.lease, answers, self.lends))
