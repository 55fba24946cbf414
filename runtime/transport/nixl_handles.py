"""What NIXL hands out, owned: lists and transfers that cannot be misused, and its errors as ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from kvplan.plan.errors import KvplanError
from kvplan.runtime.errors import HandleError, PeerLostError, TransportError
from kvplan.runtime.ops import logs

LOST = "nixlRemoteDisconnectError"


class AgentOwner(Protocol):
    """The transport that a list or a transfer belongs to. `agent` raises TransportError once it is closed."""

    telemetry: bool

    @property
    def agent(self) -> Any: ...

    @property
    def bindings(self) -> Any: ...

    @property
    def closed(self) -> bool: ...

    def found_lost(self, peer: str) -> None: ...


class NixlList:
    """A prepared list, known by its owner: NIXL takes a list of another agent, and crashes."""

    def __init__(self, owner: AgentOwner, peer: str | None, value: Any) -> None:
        self.owner, self.peer, self.value = owner, peer, value
        self.released = False

    def release(self) -> None:
        if not self.released:
            self.released, value, self.value = True, self.value, None
            with errors(self.owner.bindings):
                value.release()

    def cut(self) -> None:
        """The agent goes: nothing of NIXL may be kept alive by this list."""
        if not self.released:
            self.released, value, self.value = True, self.value, None
            attempt("release of a prepared list", value.release)


class NixlTransfer:
    """One posted transfer. States: posted, done, failed, cut, released; NIXL is asked of those posted only.

    A transfer is cut when its agent goes: no byte of it moves any more.
    """

    def __init__(self, owner: AgentOwner, peer: str, value: Any) -> None:
        self.owner, self.peer, self.value, self.state = owner, peer, value, "made"

    def post(self) -> None:
        if self.state != "made":
            raise HandleError(f"a transfer that is {self.state} cannot be posted: make a new one")
        self._follow("transfer")

    def poll(self) -> bool:
        if self.state in ("failed", "released"):
            raise HandleError(f"a transfer that is {self.state} cannot be polled")
        if self.state == "cut":
            raise PeerLostError(f"the transfer with {self.peer} was cut: this side gave its memory back")
        if self.state == "posted":
            self._follow("check_xfer_state")
        return self.state == "done"

    def _follow(self, call: str) -> None:
        agent = self.owner.agent
        # Failed until NIXL says otherwise: an error that is raised here leaves the handle unusable.
        self.state = "failed"
        try:
            with errors(self.owner.bindings):
                answer = getattr(agent, call)(self.value)
        except PeerLostError:
            self.owner.found_lost(self.peer)
            raise
        if answer not in ("DONE", "PROC"):
            raise TransportError(f"NIXL says {answer} about a transfer with {self.peer}")
        self.state = "done" if answer == "DONE" else "posted"

    def requests(self) -> int | None:
        if not self.owner.telemetry or self.state != "done":
            return None
        with errors(self.owner.bindings):
            return int(self.owner.agent.get_xfer_telemetry(self.value).descCount)

    def release(self) -> None:
        if self.state == "released":
            return
        if self.state == "posted" and not self.owner.closed:
            raise HandleError("a transfer that may still move bytes cannot be released: wait, or close the transport")
        self.state = "released"
        self._give_back()

    def cut(self) -> None:
        """The agent goes: nothing of NIXL may be kept alive by this handle."""
        self.state = "cut" if self.state in ("made", "posted", "failed") else self.state
        self._give_back()

    def _give_back(self) -> None:
        # Nothing can move any more: what NIXL says now must not keep the blocks from their owner.
        value, self.value = self.value, None
        if value is not None:
            attempt(f"release of a transfer with {self.peer}", value.release)


def attempt(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Call NIXL to give something back; a failure is logged, and what comes next goes on."""
    try:
        call(*arguments)
    except Exception as error:
        logs.event(logs.WARNING, "release failed", what=what, error=f"{type(error).__name__}: {error}")


@contextmanager
def errors(bindings: Any, other: type[TransportError] = TransportError) -> Iterator[None]:
    """NIXL's exceptions, which have no common base, as ours: `other`, or PeerLostError."""
    try:
        yield
    except KvplanError as error:
        raise error if isinstance(error, other) else other(str(error)) from error
    except Exception as error:
        name = type(error).__name__
        known = getattr(bindings, name, None) is type(error)
        kind = PeerLostError if known and name == LOST else other
        raise kind(f"NIXL: {name}: {error}") from error
