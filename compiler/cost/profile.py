"""A machine's profile: what a request, a byte on the wire and a byte copied cost there, measured by `calibrate`."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MachineProfile:
    """What moving costs on a machine. `says` tells where the figures come from and under which conditions.

    `request_us` is one posted request, `wire` bytes a second of long requests, `copies` pairs (bytes that lie together
    on both sides of a copy, bytes a second), with rising bytes; `slice_us` what a slice costs beside its requests.
    """

    name: str
    says: str
    request_us: float
    wire: float
    copies: tuple[tuple[int, float], ...]
    slice_us: float = 0.0

    def wire_us(self, requests: int, size: int) -> float:
        """Microseconds that `requests` requests of `size` bytes in all take."""
        return requests * self.request_us + size / self.wire * 1e6

    def copy_us(self, size: int, together: int) -> float:
        """Microseconds of a copy of `size` bytes of which `together` lie together, between the two nearest measured."""
        at = bisect_right(self.copies, (together, float("inf")))
        if at in (0, len(self.copies)):
            return size / self.copies[max(at - 1, 0)][1] * 1e6
        (low, slow), (high, fast) = self.copies[at - 1 : at + 1]
        # Time per byte falls as spans grow: what is fixed per span is shared out over its bytes.
        share = (1 / together - 1 / high) / (1 / low - 1 / high)
        return size * (share / slow + (1 - share) / fast) * 1e6
