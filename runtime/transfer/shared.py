"""Shared transfer: one transfer of the transport that several slices wait for, each as if it were its own."""

from __future__ import annotations

from collections.abc import Sequence

from kvplan.runtime.transport.base import TransferHandle


class SharedTransfer:
    """A transfer of `holders` slices. What it failed with all are told; it is given back when the last one lets go."""

    def __init__(self, handle: TransferHandle, holders: int) -> None:
        self._handle, self._holders, self._counted = handle, holders, False
        self._error: Exception | None = None

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
        """As the protocol says: the first one who asks is told of all, the others of none."""
        count = self._handle.requests()
        if count is None or not self._counted:
            self._counted = True
            return count
        return 0

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
