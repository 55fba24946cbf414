"""A prefill worker that packs for one reader in this process: its packs, and the stage as the reader knows it."""

from __future__ import annotations

import msgspec
from tests.runtime.helpers.ends import Ends

from kvplan.runtime.control.messages import AskPack, Packed, ReturnPack
from kvplan.runtime.prefill.clients import DecodeClient
from kvplan.runtime.prefill.lease import Claimant
from kvplan.runtime.prefill.packs import PagePacks
from kvplan.runtime.transfer.packed import PeerStage


class PackingPeer:
    """Prefill worker `theirs` and its stage of `size` bytes; `stage` is for links of decode worker `ours`."""

    def __init__(self, world: Ends, theirs: int, ours: int, size: int) -> None:
        self._own = world.stage(theirs, True, size)
        if self._own.buffer_bytes:
            self._own.open()
        self._client = DecodeClient(b"d", "decode", Claimant("run", "", ours), world.plan, frozenset(), 0.0)
        self._packs = PagePacks(world.pools[0][theirs], self._own, world.agents[0][theirs], self._tell)
        self.stage = PeerStage(self, self._own.buffer_bytes)
        self._said = list[Packed]()

    def say(self, message: msgspec.Struct) -> None:
        """The reader asks."""
        assert isinstance(message, AskPack)
        self._packs.want(self._client, message)

    def send(self, message: msgspec.Struct) -> bool:
        """The reader gives back."""
        assert isinstance(message, ReturnPack)
        return self._packs.give_back(self._client, message)

    def step(self) -> None:
        """A round of the worker."""
        self._own.begin()
        self._packs.step()
        said, self._said = self._said, []
        assert all(self.stage.packed(message.number, message.address) for message in said)

    def close(self) -> None:
        assert not len(self._packs)
        self._own.close()

    def _tell(self, client: DecodeClient, message: msgspec.Struct) -> None:
        """Heard later, as everything that goes over a line."""
        assert isinstance(message, Packed), message
        self._said.append(message)
