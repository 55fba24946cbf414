"""Notes: what comes back of them, and that nothing of one that cannot be read is used."""

from __future__ import annotations

import math
from contextlib import suppress

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvplan.integrations.shared.note import VERSION, PrefillNote, read_note
from kvplan.runtime.errors import NoteError

NOTES = st.builds(
    PrefillNote,
    st.integers(0, (1 << 31) - 1),
    st.none() | st.floats(max_value=0, allow_nan=False, allow_infinity=False),
    st.lists(st.binary(max_size=40), max_size=12).map(tuple),
)


@given(NOTES)
def test_a_note_is_read_as_it_was_written(note: PrefillNote) -> None:
    assert read_note(note.encode()) == note


@given(st.binary(max_size=200), NOTES)
def test_any_other_bytes_are_a_note_or_a_typed_error(data: bytes, note: PrefillNote) -> None:
    for one in (data, note.encode() + data, note.encode()[: len(data)]):
        with suppress(NoteError):
            assert isinstance(read_note(one), PrefillNote)


def packed(**said: object) -> bytes:
    return msgspec.msgpack.encode({"version": VERSION, "token": 5, **said})


@pytest.mark.parametrize(
    ("note", "text"),
    [
        (b"", "attached no note"),
        (packed(version=2), "version 2, ours is 1: install one release"),
        (packed(token=-1), "cannot be read"),
        (packed(token=1 << 31), "cannot be read"),
        (packed(token="a"), "cannot be read"),
        (packed(logprob=0.5), "0.5, which is none"),
        (packed(logprob=math.nan), "nan, which is none"),
        (packed(logprob=-math.inf), "-inf, which is none"),
        (packed(rows=[b""] * 65), "cannot be read"),
        (packed(rows="rows"), "cannot be read"),
        (msgspec.msgpack.encode({"token": 5}), "cannot be read"),
        (msgspec.msgpack.encode([5]), "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_note_is_said(note: bytes, text: str) -> None:
    with pytest.raises(NoteError, match=text):
        read_note(note)


def test_what_a_later_release_adds_is_ignored() -> None:
    assert read_note(packed(reasoning=3)) == PrefillNote(5)
