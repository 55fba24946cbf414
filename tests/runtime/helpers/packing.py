"""A worker whose stage one peer in this process uses: what it is asked for, and the stage as the peer knows it."""

from __future__ import annotations

import msgspec
from tests.runtime.helpers.ends import Ends
from tests.runtime.helpers.waiting import until

from kvplan.runtime.control.messages import AskBuffer, Lent, ReturnBuffer
from kvplan.runtime.staging.lending import LentPieces
from kvplan.runtime.staging.lent import PeerStage
from kvplan.runtime.staging.requested_images import RequestedImages


class LendingPeer:
    """The worker whose stage of `size` bytes prefill worker `theirs` and decode worker `ours` use.

    With `push` decode lends, and prefill writes; otherwise prefill packs, and decode reads.
    """

    def __init__(self, world: Ends, theirs: int, ours: int, size: int, *, push: bool) -> None:
        lender, asker = (ours, theirs) if push else (theirs, ours)
        self._own = world.stage(lender, not push, size)
        if self._own.buffer_bytes:
            self._own.open()
        images = RequestedImages(world.plan, world.pools[push][lender], self._own, asker, push=push)
        self._pieces = LentPieces(self._own, images, "p", packed=not push, say=self.say, failed=_failed)
        self.stage, self._said = PeerStage(self.say, self.send, self._own.buffer_bytes), list[Lent]()

    def say(self, message: msgspec.Struct) -> None:
        """The peer asks, or is told that it was lent a buffer, which it hears later."""
        if isinstance(message, Lent):
            self._said.append(message)
            return
        assert isinstance(message, AskBuffer)
        self._pieces.want(message, lambda wanted: None)

    def send(self, message: msgspec.Struct) -> bool:
        """The peer gives back."""
        assert isinstance(message, ReturnBuffer)
        return self._pieces.give_back(message.number, moved=message.moved)

    def step(self) -> None:
        """A round of the worker."""
        self._own.begin()
        self._pieces.step()
        said, self._said = self._said, []
        assert all(self.stage.lent(message.request, message.number, message.address) for message in said)

    def close(self) -> None:
        until(lambda: not self._pieces, self.step)
        self._own.close()


def _failed(request: str, error: Exception) -> None:
    raise error
