"""Transfer handles: what may be asked of a posted transfer in each of its states, whatever transport it is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import auto

from kvplan.runtime.errors import HandleError, PeerLostError
from kvplan.runtime.machine import TextEnum


class HandleState(TextEnum):
    """What a transfer is. One that is cut moves no byte any more, as its agent has ended."""

    POSTED = auto()
    DONE = auto()
    FAILED = auto()
    CUT = auto()
    RELEASED = auto()


class PostedTransfer(ABC):
    """One posted transfer; its transport is asked of it while it is posted, and never again."""

    def __init__(self, peer: str) -> None:
        self.peer, self.state = peer, HandleState.POSTED

    @property
    def open(self) -> bool:
        """Whether bytes may still move, as far as is known."""
        return self.state in (HandleState.POSTED, HandleState.FAILED)

    @property
    def failed(self) -> bool:
        return self.state is HandleState.FAILED

    def poll(self) -> bool:
        if self.state in (HandleState.FAILED, HandleState.RELEASED):
            raise HandleError(f"a transfer that is {self.state} cannot be polled")
        if self.state is HandleState.CUT:
            raise PeerLostError(f"the transfer with {self.peer} was cut: this side gave its memory back")
        if self.state is HandleState.POSTED:
            self._follow()
        return self.state is HandleState.DONE

    @abstractmethod
    def descriptors(self) -> int | None:
        """As the protocol says."""

    def release(self) -> None:
        """As the protocol says. Once more does nothing."""
        if self.state is HandleState.RELEASED:
            return
        if self.state is HandleState.POSTED and self._live():
            raise HandleError("a transfer that may still move bytes cannot be released: wait, or close the transport")
        self.state = HandleState.RELEASED
        self._give_back()

    def cut(self) -> None:
        """The agent goes: nothing of it may be kept alive by this handle."""
        if self.open:
            self.state = HandleState.CUT
        self._give_back()

    @abstractmethod
    def _follow(self) -> None:
        """Ask the transport how far it is. If that raises, the state is FAILED."""

    @abstractmethod
    def _live(self) -> bool:
        """Whether its agent is there, so that bytes may move."""

    @abstractmethod
    def _give_back(self) -> None:
        """Nothing moves any more: release what the transport keeps of it."""
