"""The auxiliary rows of a request: its first token, logprobs and room, as SGLang keeps them for decode."""

from __future__ import annotations

import ctypes
import math
import struct
from dataclasses import dataclass

from kvplan.integrations.shared.note import PrefillNote
from kvplan.runtime.errors import NoteError

# SGLang's buffers of the first token, its logprob, that logprob's token, and the logprobs of the most likely tokens.
TOKEN, LOGPROB, LOGPROB_TOKEN, TOP_LOGPROBS = 0, 2, 3, 4
UNKNOWN = struct.pack("<f", math.nan)


@dataclass(frozen=True, slots=True)
class AuxRows:
    """Buffers in host memory with one row per request: their `addresses`, and each buffer's `sizes` of a row in bytes.

    `room` is the buffer of the request's room.
    """

    addresses: tuple[int, ...]
    sizes: tuple[int, ...]
    room: int

    def read(self, row: int) -> PrefillNote:
        """Return the note for decode about the request of this row."""
        places = zip(self.addresses, self.sizes, strict=True)
        rows = tuple(ctypes.string_at(address + row * size, size) for address, size in places)
        (token,) = struct.unpack_from("<i", rows[TOKEN])
        return PrefillNote(token, rows=rows)

    def write(self, row: int, note: PrefillNote, room: int) -> None:
        """Fill the rows of one request, with the note's rows if it has some. Raises NoteError for other rows."""
        rows = note.rows or self._rows_from(note, room)
        if tuple(map(len, rows)) != self.sizes:
            text = f"auxiliary rows of {sum(map(len, rows))} bytes came with the request, ours have {sum(self.sizes)}"
            raise NoteError(f"{text}: give both engines the same settings of logprobs and speculation")
        for address, size, data in zip(self.addresses, self.sizes, rows, strict=True):
            ctypes.memmove(address + row * size, data, size)

    def _rows_from(self, note: PrefillNote, room: int) -> tuple[bytes, ...]:
        """Make rows for the note of an engine that keeps none. A missing logprob becomes NaN."""
        token = struct.pack("<i", note.token)
        logprob = UNKNOWN if note.logprob is None else struct.pack("<f", note.logprob)
        unlikely = UNKNOWN * (self.sizes[TOP_LOGPROBS] // len(UNKNOWN))
        filled = {TOKEN: token, LOGPROB: logprob, LOGPROB_TOKEN: token, TOP_LOGPROBS: unlikely}
        filled[self.room] = struct.pack("<Q", room)
        return tuple(filled.get(number, b"").ljust(size, b"\0") for number, size in enumerate(self.sizes))
