"""Shared transfer: one transfer of the transport that several slices wait for, each as if it were its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kvplan.runtime.errors import PeerLostError
from kvplan.runtime.transport.base import TransferHandle


@dataclass(slots=True, eq=False)
class SharedTransfer:
    """A transfer of `holders` slices, given back when the last one lets go. `error` is what it last failed with."""

    handle: TransferHandle
    holders: int
    error: Exception | None = None


class TransferShare:
    """What one slice holds of a transfer: what that failed with it is told once, even if another one asked first.

    Then the transport is asked again, which may find that no byte moves any more.
    """

    def __init__(self, transfer: SharedTransfer) -> None:
        self._transfer, self._told = transfer, False

    @property
    def failed(self) -> bool:
        """As the protocol says."""
        return self._transfer.handle.failed

    def poll(self) -> bool:
        """As the protocol says."""
        error = self._transfer.error
        # Of a lost peer the transport is asked no more.
        if error is not None and (not self._told or isinstance(error, PeerLostError)):
            self._told = True
            raise error
        try:
            return self._transfer.handle.poll()
        except Exception as error:
            self._transfer.error, self._told = error, True
            raise

    def descriptors(self) -> int | None:
        """As the protocol says: those of all slices."""
        return self._transfer.handle.descriptors()

    def release(self) -> None:
        """Its slice waits for the transfer no more."""
        self._transfer.holders -= 1
        if not self._transfer.holders:
            self._transfer.handle.release()


def shares(handles: Sequence[TransferHandle | None], holders: int) -> list[list[TransferHandle | None]]:
    """Handles as each of so many slices holds them: of one alone they are its own."""
    if holders == 1:
        return [list(handles)]
    transfers = [None if handle is None else SharedTransfer(handle, holders) for handle in handles]
    return [[None if one is None else TransferShare(one) for one in transfers] for _ in range(holders)]


@dataclass(frozen=True, slots=True)
class TransferPart:
    """What of a transfer is one slice's: bytes [first, end) of `bytes`.

    Its descriptors count for its slices by their bytes: neighbours of two slices may be one descriptor.
    """

    first: int
    end: int
    bytes: int

    def of(self, count: int) -> int:
        """So many of `count`; those of all parts are `count` together."""
        return count * self.end // self.bytes - count * self.first // self.bytes


WHOLE = TransferPart(0, 1, 1)


def parts(sizes: Sequence[int]) -> list[TransferPart]:
    """The parts of slices of so many bytes each, one or more."""
    if len(sizes) == 1:
        return [WHOLE]
    edges = [0, *accumulate(sizes)]
    return [TransferPart(first, end, edges[-1]) for first, end in pairwise(edges)]
