"""Door: the connections of a server's socket, counted before anybody has shown a key, and weighed after that.

libzmq takes every connection, and all parts of a message before it gives one of them away. What it tells are the
descriptors of its connections, and from which of them a message came. So who is above a limit is shut down from here,
by a copy of the descriptor that was looked at first: the number may be another connection's by now.
"""

from __future__ import annotations

import ctypes
import os
import socket as sockets
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kvplan.runtime import clock as clocks
from kvplan.runtime.control.card import LARGEST
from kvplan.runtime.ops import logs

# Connections whose handshake may not be over yet, and in all: from one address, and from everybody.
YOUNG_OF_ADDRESS, YOUNG = 512, 4096
OPEN_OF_ADDRESS, OPEN = 4096, 8192
# Bytes of a message that is not all there: beside the largest, as much may lie in buffers on the way.
HEAVIEST = 2 * LARGEST
# Seconds between two looks at what has come.
EVERY = 0.1
# Where `struct tcp_info` of linux/tcp.h has tcpi_bytes_received.
RECEIVED = struct.Struct("@128xQ")
NAMED = 64
# Linux has it.
_TCP_INFO: int | None = getattr(sockets, "TCP_INFO", None)
_getsockopt = ctypes.PyDLL(None).getsockopt


@dataclass(slots=True)
class OpenConnection:
    """One connection: both of its ends, and how many bytes had come over it when a message last did."""

    ends: tuple[object, object]
    address: str
    base: int = 0


class Door:
    """All connections of the server at `address`, by descriptor. `grace` is how many seconds a handshake may take."""

    def __init__(self, address: str, grace: float, clock: Callable[[], float] = clocks.now) -> None:
        scheme, _, place = address.partition("://")
        self._place = int(place.rpartition(":")[2]) if scheme == "tcp" else place
        self._grace, self._clock = grace, clock
        self._open: dict[int, OpenConnection] = {}
        self._young: OrderedDict[int, float] = OrderedDict()
        self._of_address, self._young_of = Counter[str](), Counter[str]()
        self._looked = clock()
        self._named = set[str]()

    def __len__(self) -> int:
        return len(self._open)

    def accepted(self, descriptor: int) -> None:
        """A connection was made; it is ended where there are too many."""
        self.gone(descriptor)
        copy = _copy(descriptor)
        if copy is None:
            return
        with copy:
            if _place(copy) != self._place:
                return
            address = _address(copy)
            self._ripen()
            if why := self._crowd(address):
                self._end(copy, address, why)
                return
            self._open[descriptor] = OpenConnection(_ends(copy), address)
        self._young[descriptor] = self._clock()
        self._of_address[address] += 1
        self._young_of[address] += 1

    def gone(self, descriptor: int) -> None:
        """A connection has ended."""
        connection = self._open.pop(descriptor, None)
        if connection is None:
            return
        _less(self._of_address, connection.address)
        if self._young.pop(descriptor, None) is not None:
            _less(self._young_of, connection.address)

    def heard(self, descriptors: Iterable[int]) -> None:
        """Messages came over these: what is on its way there began behind them."""
        for descriptor in descriptors:
            if (connection := self._open.get(descriptor)) is not None:
                connection.base = _received(descriptor)

    def weigh(self) -> None:
        """End the connections over which more has come than a message may have. To be called when no message waits."""
        if self._clock() - self._looked < EVERY:
            return
        self._looked = self._clock()
        for descriptor, connection in list(self._open.items()):
            if _received(descriptor) - connection.base > HEAVIEST:
                self._end_heavy(descriptor, connection)

    def _ripen(self) -> None:
        """Handshakes that have had their time are over: libzmq has ended those that were not done."""
        while self._young and self._clock() - next(iter(self._young.values())) > self._grace:
            descriptor, _ = self._young.popitem(last=False)
            _less(self._young_of, self._open[descriptor].address)

    def _crowd(self, address: str) -> str:
        """Which limit one more connection would exceed, empty if none."""
        limits = {
            f"{YOUNG_OF_ADDRESS} handshakes from there": self._young_of[address] >= YOUNG_OF_ADDRESS,
            f"{YOUNG} handshakes": len(self._young) >= YOUNG,
            f"{OPEN_OF_ADDRESS} connections from there": self._of_address[address] >= OPEN_OF_ADDRESS,
            f"{OPEN} connections": len(self._open) >= OPEN,
        }
        return next((text for text, reached in limits.items() if reached), "")

    def _end_heavy(self, descriptor: int, connection: OpenConnection) -> None:
        copy = _copy(descriptor)
        if copy is not None:
            with copy:
                if _ends(copy) == connection.ends:
                    self._end(copy, connection.address, f"a message of more than {LARGEST} bytes")

    def _end(self, copy: sockets.socket, address: str, why: str) -> None:
        if address not in self._named and len(self._named) < NAMED:
            self._named.add(address)
            logs.event(logs.WARNING, "connection refused", address=address, reason=why)
        try:
            copy.shutdown(sockets.SHUT_RDWR)
        except OSError:
            # It has ended by itself.
            return


def _less(counts: Counter[str], address: str) -> None:
    counts[address] -= 1
    if not counts[address]:
        del counts[address]


def _copy(descriptor: int) -> sockets.socket | None:
    """The connection as a socket of its own, None where there is none any more."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        return None
    try:
        return sockets.socket(fileno=copy)
    except OSError:
        # The number is that of something else by now.
        os.close(copy)
        return None


def _ends(socket: sockets.socket) -> tuple[object, object]:
    try:
        return socket.getsockname(), socket.getpeername()
    except OSError:
        return None, None


def _address(socket: sockets.socket) -> str:
    """Where the peer is, without its port; one text for all of a socket in the file system."""
    peer = _ends(socket)[1]
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _place(socket: sockets.socket) -> object:
    """The port, or the path, at which the connection was made."""
    local = _ends(socket)[0]
    return local[1] if isinstance(local, tuple) else local


def _received(descriptor: int) -> int:
    """Bytes that have come over a connection, 0 where nobody counts them.

    The system is asked by number. A socket of Python's that had the number would close it where a handler of a signal
    raises before it is taken back: libzmq ends the process over that, or closes what has the number by then.
    """
    if _TCP_INFO is None:
        return 0
    info, size = ctypes.create_string_buffer(RECEIVED.size), ctypes.c_uint32(RECEIVED.size)
    refused = _getsockopt(descriptor, sockets.IPPROTO_TCP, _TCP_INFO, info, ctypes.byref(size))
    return 0 if refused or size.value < RECEIVED.size else int(RECEIVED.unpack(info.raw)[0])
