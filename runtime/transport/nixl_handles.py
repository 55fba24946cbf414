"""NIXL's handles with checks against misuse, prepared lists and transfers, and its errors as kvplan's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from kvplan.plan.errors import KvplanError
from kvplan.runtime.errors import PeerLostError, TransportError
from kvplan.runtime.ops import logs
from kvplan.runtime.transport.base import HandleState, PostedTransfer

LOST = "nixlRemoteDisconnectError"


class AgentOwner(Protocol):
    """The transport that owns a list or a transfer. `agent` raises TransportError once the transport is closed."""

    telemetry: bool

    @property
    def agent(self) -> Any: ...

    @property
    def bindings(self) -> Any: ...

    @property
    def closed(self) -> bool: ...

    def found_lost(self, peer: str) -> None: ...


class NixlList:
    """A prepared list and its owner. The owner is checked, because NIXL accepts another agent's list and crashes."""

    def __init__(self, owner: AgentOwner, peer: str | None, value: Any) -> None:
        self.owner, self.peer, self.value = owner, peer, value
        self.released = False

    def release(self) -> None:
        if not self.released:
            self.released, value, self.value = True, self.value, None
            with errors(self.owner.bindings):
                value.release()

    def cut(self) -> None:
        """Release NIXL's list, because the agent ends."""
        attempt("release of a prepared list", self.release)


class NixlTransfer(PostedTransfer):
    """One transfer by NIXL."""

    def __init__(self, owner: AgentOwner, peer: str, value: Any) -> None:
        super().__init__(peer)
        self.owner, self.value = owner, value

    def post(self) -> None:
        self._ask("transfer")

    def descriptors(self) -> int | None:
        if not self.owner.telemetry or self.state is not HandleState.DONE:
            return None
        with errors(self.owner.bindings):
            return int(self.owner.agent.get_xfer_telemetry(self.value).descCount)

    def _follow(self) -> None:
        self._ask("check_xfer_state")

    def _ask(self, call: str) -> None:
        agent = self.owner.agent
        # FAILED until NIXL answers: an error raised here leaves the handle unusable.
        self.state = HandleState.FAILED
        try:
            with errors(self.owner.bindings):
                answer = getattr(agent, call)(self.value)
        except PeerLostError:
            self.owner.found_lost(self.peer)
            raise
        if answer not in ("DONE", "PROC"):
            raise TransportError(f"NIXL says {answer} about a transfer with {self.peer}")
        self.state = HandleState.DONE if answer == "DONE" else HandleState.POSTED

    def _live(self) -> bool:
        return not self.owner.closed

    def _give_back(self) -> None:
        # No bytes can move any more, so an error of NIXL must not delay the release of the blocks.
        value, self.value = self.value, None
        if value is not None:
            attempt(f"release of a transfer with {self.peer}", value.release)


def attempt(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Call NIXL to release something. A failure is logged and not raised, so that other releases follow."""
    try:
        call(*arguments)
    except Exception as error:
        logs.event(logs.WARNING, "release failed", what=what, error=f"{type(error).__name__}: {error}")


class errors:  # noqa: N801  # reads as what it is used for: `with errors(bindings):`
    """A context that turns NIXL's exceptions, which have no common base, into PeerLostError or `other`.

    It is a class because a generator would add a microsecond to each of the ten calls of a request.
    """

    __slots__ = ("_bindings", "_other")

    def __init__(self, bindings: Any, other: type[TransportError] = TransportError) -> None:
        self._bindings, self._other = bindings, other

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, self._other):
            raise self._ours(error) from error

    def _ours(self, error: Exception) -> KvplanError:
        if isinstance(error, KvplanError):
            return self._other(str(error))
        name = type(error).__name__
        known = getattr(self._bindings, name, None) is type(error)
        kind = PeerLostError if known and name == LOST else self._other
        return kind(f"NIXL: {name}: {error}")
