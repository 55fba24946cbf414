"""The note of a prefill engine to the readers of a request: its first token, in a form that every engine reads.

A note is a map in MessagePack with these keys. Readers ignore keys that they do not know:
    version   1
    token     the first generated token, 0 or more
    logprob   its log probability, if the engine has it at hand
    rows      auxiliary rows, for an engine of the same kind that keeps the same rows
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from kvplan.runtime.errors import NoteError

VERSION = 1
Token = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Rows = Annotated[tuple[bytes, ...], msgspec.Meta(max_length=64)]


class PrefillNote(msgspec.Struct, frozen=True, omit_defaults=True):
    """A prefill engine's results of a request that it computed. The runtime bounds a note to 64 KiB."""

    token: Token
    logprob: float | None = None
    rows: Rows = ()

    def encode(self) -> bytes:
        """Return the note in the form that is attached to a request."""
        return msgspec.msgpack.encode({"version": VERSION, **msgspec.to_builtins(self, builtin_types=(bytes,))})


class _Version(msgspec.Struct):
    version: int


def read_note(note: bytes) -> PrefillNote:
    """Read the note of a request that has arrived. Raises NoteError if it is missing or unreadable."""
    if not note:
        raise NoteError("the prefill engine attached no note: decode does not know the first token")
    try:
        version = msgspec.msgpack.decode(note, type=_Version).version
        if version != VERSION:
            raise NoteError(f"the note has version {version}, ours is {VERSION}: install one release on both engines")
        read = msgspec.msgpack.decode(note, type=PrefillNote)
    except msgspec.MsgspecError as error:
        raise NoteError(f"the note of {len(note)} bytes cannot be read: {error}") from error
    if read.logprob is not None and not (math.isfinite(read.logprob) and read.logprob <= 0):
        raise NoteError(f"the note has the log probability {read.logprob}, which is none")
    return read
