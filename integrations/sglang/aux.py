"""The auxiliary rows of a request: its first token, logprobs and room, as bytes of a note."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from kvplan.plan.errors import BadRequestError


@dataclass(frozen=True, slots=True)
class AuxRows:
    """Buffers in host memory with one row a request: their `addresses`, and by buffer the `sizes` of a row in bytes."""

    addresses: tuple[int, ...]
    sizes: tuple[int, ...]

    def read(self, row: int) -> bytes:
        """The rows of one request, one after the other."""
        places = zip(self.addresses, self.sizes, strict=True)
        return b"".join(ctypes.string_at(address + row * size, size) for address, size in places)

    def write(self, row: int, note: bytes) -> None:
        """Fill the rows of one request. Raises BadRequestError for a note of other rows."""
        if len(note) != sum(self.sizes):
            text = f"auxiliary data of {len(note)} bytes came with the request, ours has {sum(self.sizes)}"
            raise BadRequestError(f"{text}: give both engines the same settings of logprobs and speculation")
        at = 0
        for address, size in zip(self.addresses, self.sizes, strict=True):
            ctypes.memmove(address + row * size, note[at : at + size], size)
            at += size
