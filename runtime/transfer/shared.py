"""Shared transfer: one transfer of the transport that several slices wait for, each as if it were its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from kvplan.runtime.transport.base import TransferHandle


class SharedTransfer:
    """A transfer of `holders` slices. What it failed with all are told; it is given back when the last one lets go."""

    def __init__(self, handle: TransferHandle, holders: int) -> None:
        self._handle, self._holders = handle, holders
        self._error: Exception | None = None

    @property
    def failed(self) -> bool:
        """As the protocol says."""
        return self._handle.failed

    def poll(self) -> bool:
        """As the protocol says."""
        if self._error is not None:
            raise self._error
        try:
            return self._handle.poll()
        except Exception as error:
            self._error = error
            raise

    def requests(self) -> int | None:
        """As the protocol says: those of all slices."""
        return self._handle.requests()

    def release(self) -> None:
        """One slice waits for it no more."""
        self._holders -= 1
        if not self._holders:
            self._handle.release()


def shared(handles: Sequence[TransferHandle | None], holders: int) -> list[TransferHandle | None]:
    """Handles as so many slices hold them: of one alone they are its own."""
    if holders == 1:
        return list(handles)
    return [None if handle is None else SharedTransfer(handle, holders) for handle in handles]


@dataclass(frozen=True, slots=True)
class TransferPart:
    """What of a transfer is one slice's: bytes [first, end) of `bytes`.

    What is counted of the transfer is counted with its slices by their bytes: neighbours of two slices are one request.
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
    edges = [0, *accumulate(sizes)]
    return [TransferPart(first, end, edges[-1]) for first, end in pairwise(edges)]
