"""What a transport does: register memory, meet peers, read by prepared index or by address, notify.

Lists of descriptors are int64 arrays: strided rows (address, bytes, device, stride, count), or explicit rows
(address, bytes, device). Every call may raise TransportError or PeerLostError.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from kvplan.runtime.plan import Ints

Index = npt.NDArray[np.int32]


class Prepared(Protocol):
    """A list of descriptors, prepared once and used by index."""

    def release(self) -> None: ...


class Handle(Protocol):
    """One posted read. It has one owner, is released once, and never while it may still write."""

    def poll(self) -> bool:
        """Whether it is done. Raises PeerLostError where its connection is gone and nothing can be written any more,

        another TransportError where it failed and may still write.
        """

    def requests(self) -> int | None:
        """Requests posted, None where the transport does not count them. Only when done."""

    def release(self) -> None:
        """Give it back. Raises HandleError while it is under way."""


class Transport(Protocol):
    """One agent of one process. All of it may be called from several threads."""

    name: str

    def register(self, regions: Ints, mem_type: str) -> None:
        """Register rows (address, bytes, device), once."""

    def metadata(self) -> bytes:
        """What a peer needs to read from here."""

    def add_peer(self, metadata: bytes) -> str:
        """Meet a peer; returns its name. Meeting it again changes nothing."""

    def remove_peer(self, peer: str) -> None:
        """Forget a peer that no read is under way from. This does not stop reads: their bytes may still come."""

    def prepare(self, peer: str | None, rows: Ints, mem_type: str) -> Prepared:
        """Prepare strided rows of a peer's memory, or of this process's with None."""

    def read(self, peer: str, local: Prepared, local_at: Index, remote: Prepared, remote_at: Index) -> Handle:
        """Post a read of prepared descriptors by index: element n of either side is one request."""

    def read_spans(self, peer: str, local: Ints, local_type: str, remote: Ints, remote_type: str) -> Handle:
        """Post a read of explicit rows."""

    def notify(self, peer: str, message: bytes) -> None:
        """Send a message."""

    def notifications(self) -> list[tuple[str, bytes]]:
        """Messages that came in, by sender. Progresses the transport, so both sides must call it."""

    def close(self) -> None:
        """End everything: nothing can write into registered memory any more."""
