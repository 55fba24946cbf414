"""Workers whose stage one peer in this process uses: what they are asked for, and the stage as the peer knows it."""

from __future__ import annotations

import msgspec
from tests.runtime.helpers.ends import Ends
from tests.runtime.helpers.waiting import until

from kvplan.runtime.control.messages import AskBuffer, Lent, ReturnBuffer
from kvplan.runtime.prefill.packs import PagePacks
from kvplan.runtime.protocol.pins import Claimant
from kvplan.runtime.protocol.readers import Reader
from kvplan.runtime.staging.asked import AskedImages
from kvplan.runtime.staging.lending import LentPieces
from kvplan.runtime.staging.lent import PeerStage


class PackingPeer:
    """Prefill worker `theirs` and its stage of `size` bytes; `stage` is for links of decode worker `ours`."""

    def __init__(self, world: Ends, theirs: int, ours: int, size: int) -> None:
        self._own = world.stage(theirs, True, size)
        if self._own.buffer_bytes:
            self._own.open()
        self._reader = Reader(b"d", "decode", Claimant("run", "", ours), world.plan, frozenset())
        self._packs = PagePacks(world.pools[0][theirs], self._own, world.agents[0][theirs], self._tell)
        self.stage = PeerStage(self.say, self.send, self._own.buffer_bytes)
        self._said = list[Lent]()

    def say(self, message: msgspec.Struct) -> None:
        """The reader asks."""
        assert isinstance(message, AskBuffer)
        self._packs.want(self._reader, message)

    def send(self, message: msgspec.Struct) -> bool:
        """The reader gives back."""
        assert isinstance(message, ReturnBuffer)
        return self._packs.give_back(self._reader, message)

    def step(self) -> None:
        """A round of the worker."""
        self._own.begin()
        self._packs.step()
        said, self._said = self._said, []
        assert all(self.stage.lent(message.request, message.number, message.address) for message in said)

    def close(self) -> None:
        assert not len(self._packs)
        self._own.close()

    def _tell(self, reader: Reader, message: msgspec.Struct) -> None:
        """Heard later, as everything that goes over a line."""
        assert isinstance(message, Lent), message
        self._said.append(message)


class LendingPeer:
    """Decode worker `ours` and its stage of `size` bytes, which prefill worker `theirs` writes through."""

    def __init__(self, world: Ends, theirs: int, ours: int, size: int) -> None:
        self._own = world.stage(ours, False, size)
        if self._own.buffer_bytes:
            self._own.open()
        images = AskedImages(world.plan, world.pools[1][ours], self._own, theirs, push=True)
        self._unpacks = LentPieces(self._own, images, "p", packed=False, say=self.say, failed=_failed)
        self.stage, self._said = PeerStage(self.say, self.send, self._own.buffer_bytes), list[Lent]()

    def say(self, message: msgspec.Struct) -> None:
        """The writer asks, or is told that it was lent a buffer, which it hears later."""
        if isinstance(message, Lent):
            self._said.append(message)
            return
        assert isinstance(message, AskBuffer)
        self._unpacks.add(message, self._unpacks.wanted(message))

    def send(self, message: msgspec.Struct) -> bool:
        """The writer gives back."""
        assert isinstance(message, ReturnBuffer)
        assert message.moved
        return self._unpacks.give_back(message.number, moved=message.moved)

    def step(self) -> None:
        """A round of the worker."""
        self._own.begin()
        self._unpacks.step()
        said, self._said = self._said, []
        assert all(self.stage.lent(message.request, message.number, message.address) for message in said)

    def close(self) -> None:
        until(lambda: not self._unpacks, self.step)
        self._own.close()


def _failed(request: str, error: Exception) -> None:
    raise error
