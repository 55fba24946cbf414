"""Cards survive the way there; what was changed, cut, made by another release or made up is refused by name."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from tests.runtime.helpers.control import PLAN, lie, unsealed

from kvplan.runtime import errors
from kvplan.runtime.control.card import (
    LARGEST,
    MAGIC,
    MOST_PLANES,
    PROTOCOL,
    EngineCard,
    Hello,
    Refusal,
    checksum,
    describe,
    encode,
    geometry,
    seal,
    together,
    unseal,
)
from kvplan.runtime.control.messages import Done, ToDecode, ToPrefill

ENGINE = EngineCard(b"n" * 16, PROTOCOL, "p", "run", 1, "m", "md", "", "", "side", "key", ("tcp://a:1",))
HELLO = Hello("engine", b"n" * 16, "d", "run", 0, "md", "", "", "side", "key", "", None, PROTOCOL)
WORKER = describe(0, PLAN, "run", 2, lie(PLAN.prefill, 0), b"metadata", b"nonce")
REFUSAL = Refusal("R004", "no", True, b"n")
# Cards sealed by the first release: commit bfa0ad5.
FIRST = {
    "engine": (
        b"\x05[\x19\x1c\x19V\xd2\x1fG\xd4q@_\x97\xe8\xba\x87\xa4type\xa6engine\xa5model\xa1m\xa4si"
        b"de\xa1s\xa4plan\xa1p\xa3key\xa1k\xa9addresses\x92\xa9tcp://a:1\xa9t"
        b"cp://b:2\xaageneration\xa1g"
    ),
    "hello": (
        b"\x05\xfd\xff\xb7'\x1fM;\x16\x9b\xb8\xa0}\x1e\xc7\x94\x84\xa4type\xa5hello\xa4want\xa6engine"
        b"\xa4plan\xa1p\xa6worker\x03"
    ),
    "refusal": (
        b'\x1b\xfe\\EN\xbe\xa1\x88Z\xfbg\x86"\x9d\x1d\xe9\x84\xa4type\xa7refusal\xa4code\xa4R004'
        b"\xa7message\xa2no\xa5again\xc3"
    ),
    "worker": (
        b"}I\x8eG%YJ\x99\x8fi V\x0f\xdcH\xb1\x8e\xa4type\xa6worker\xa6worker\x00\xa4pl"
        b"an\xa1p\xaageneration\xa1g\xa4base\x91\x01\xa6stride\x91\x02\xa4page\x91\x03"
        b"\xa5count\x91\x04\xa6device\x91\x00\xa6region\x91\x00\xa7regions\x91\x93\x01\x02\x00\xa8"
        b"mem_type\xa4DRAM\xa8metadata\xc4\x01m\xa8checksum\xc4\x10%\xeeJ\x05"
        b"\xc39BF\x04\xbf\xc2h\xf8T\xda\xfa"
    ),
}

# Cards sealed by the next release, which spoke protocol 2 and said so in the engine card only: commit 50189c0.
TWO = {
    "engine": (
        b"+\x10\xb8\xa0\xec\x92\x18`\x94\x81\x07\xa2\xccxz\x83\x8e\xa4type\xa6engine\xa5nonc"
        b"e\xc4\x10nnnnnnnnnnnnnnnn\xa8protocol\x02\xa4name"
        b"\xa1p\xa3run\xa3run\xaageneration\x01\xa5model\xa1m\xacmod"
        b"el_digest\xa2md\xa8revision\xa0\xa6scales\xa0\xa4sid"
        b"e\xa4side\xa3key\xa3key\xa9addresses\x91\xa9tcp://a:"
        b"1\xa9admission\xc2"
    ),
    "hello": (
        b'\xe8*dJ@q\x03\xc1,\x9c;\x068"+c\x8d\xa4type\xa5hello\xa4want\xa6'
        b"engine\xa5nonce\xc4\x10nnnnnnnnnnnnnnnn\xa4nam"
        b"e\xa1d\xa3run\xa3run\xa6worker\x00\xacmodel_digest\xa2m"
        b"d\xa8revision\xa0\xa6scales\xa0\xa4side\xa4side\xa3key\xa3"
        b"key\xa4plan\xa0\xa4card\xc0"
    ),
    "worker": (
        b"\x8a\x96\x90D\xe0\x95\xa5\xd0k\xf6\xf4\xbb\xb0R\xb8\xf3\xde\x00\x10\xa4type\xa6worker\xa5no"
        b"nce\xc4\x10nnnnnnnnnnnnnnnn\xa3run\xa3run\xaagene"
        b"ration\x01\xa6worker\x00\xa4plan\xa1p\xa4base\x91\x01\xa6stri"
        b"de\x91\x02\xa4page\x91\x03\xa5count\x91\x04\xa6device\x91\x00\xa6regio"
        b"n\x91\x00\xa7regions\x91\x93\x01\x02\x00\xa8mem_type\xa4DRAM\xa8met"
        b"adata\xc4\x01m\xa8checksum\xc4\x10%\xeeJ\x05\xc39BF\x04\xbf\xc2h\xf8T\xda"
        b"\xfa"
    ),
}


def wrapped(value: object) -> bytes:
    body = msgspec.msgpack.encode(value)
    return MAGIC + checksum(body) + body


def fields(card: msgspec.Struct) -> dict:
    return msgspec.msgpack.decode(msgspec.msgpack.encode(card))


@pytest.mark.parametrize("card", [ENGINE, WORKER, REFUSAL])
def test_cards_survive(card: msgspec.Struct) -> None:
    assert unsealed(seal(card), ToDecode) == card


@pytest.mark.parametrize("cut", [0, 5, 8, 20, -1])
def test_truncated(cut: int) -> None:
    with pytest.raises(errors.CardError):
        unsealed(seal(ENGINE)[:cut], ToDecode)


def test_every_flipped_bit_is_seen() -> None:
    data = seal(ENGINE)
    for place, bit in itertools.product(range(len(data)), range(8)):
        with pytest.raises(errors.CardError):
            unsealed(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :], ToDecode)


def test_another_message_than_was_expected() -> None:
    with pytest.raises(errors.CardError, match="not a Done: "):
        unsealed(seal(HELLO), Done)


def test_too_large() -> None:
    with pytest.raises(errors.CardError, match=f"above {LARGEST}"):
        seal(msgspec.structs.replace(WORKER, metadata=bytes(LARGEST)))
    with pytest.raises(errors.CardError, match=f"above {LARGEST}"):
        unsealed(MAGIC + bytes(LARGEST + 17), ToDecode)


@pytest.mark.parametrize("name", FIRST)
def test_the_first_release_is_refused_by_the_missing_field(name: str) -> None:
    with pytest.raises(errors.CardError, match=f"type {name} lacks the field `nonce`: the peer is of an older release"):
        unsealed(MAGIC + FIRST[name], ToPrefill | ToDecode)


@pytest.mark.parametrize("name", TWO)
def test_the_release_before_is_refused_by_both_numbers(name: str) -> None:
    with pytest.raises(errors.ProtocolError, match=f"speaks protocol 2, this release {PROTOCOL}: update that side"):
        unsealed(MAGIC + TWO[name], ToPrefill | ToDecode)


@pytest.mark.parametrize("card", [ENGINE, WORKER, REFUSAL, HELLO])
def test_every_field_that_is_missing_is_named(card: msgspec.Struct) -> None:
    said = {"protocol", "fabrics", "stage", "answers", "mem_types"} if card in (WORKER, HELLO) else set()
    said |= {"settings"}
    for name in [name for name in card.__struct_fields__ if name not in said]:
        rest = {key: value for key, value in fields(card).items() if key != name}
        with pytest.raises(errors.CardError, match=f"lacks the field `{name}`"):
            unsealed(wrapped(rest), type(card))


@pytest.mark.parametrize("card", [ENGINE, WORKER, REFUSAL, HELLO])
def test_unknown_fields_are_ignored(card: msgspec.Struct) -> None:
    assert unsealed(wrapped({**fields(card), "later": {"a": [1]}}), ToPrefill | ToDecode) == card


@pytest.mark.parametrize("change", [{}, {"addresses": 7}, {"nonce": "text"}])
def test_a_newer_protocol_is_named_with_both_numbers(change: dict) -> None:
    with pytest.raises(errors.ProtocolError, match=f"speaks protocol {PROTOCOL + 1}, this release {PROTOCOL}: .* this"):
        unsealed(wrapped({**fields(ENGINE), "protocol": PROTOCOL + 1, **change}), ToDecode)


@pytest.mark.parametrize(
    "change",
    [{"name": "x" * 257}, {"key": "x" * 4097}, {"generation": -1}, {"generation": 1 << 63}, {"addresses": ["a" * 257]},
     {"protocol": True}, {"nonce": b"n" * 65}, {"addresses": [""] * (MOST_PLANES + 1)}],
)  # fmt: skip
def test_fields_have_bounds(change: dict) -> None:
    with pytest.raises(errors.CardError, match="not a EngineCard"):
        unsealed(wrapped({**fields(ENGINE), **change}), EngineCard)


@pytest.mark.parametrize(
    "body",
    [
        b"\x82\xa4type\xa5hello\xa1z" + b"\x91" * 3500 + b"\x00",
        b"\x82\xa4type\xa5hello\xa4plan\xa2\xff\xfe",
        b"\x81\xa4type\xa9surprise!",
        b"\xdf\xff\xff\xff\xff",
        b"\xc1",
        b"",
    ],
)
def test_hostile_messages_are_card_errors(body: bytes) -> None:
    with pytest.raises(errors.CardError):
        unsealed(MAGIC + checksum(body) + body, ToPrefill)


def test_text_that_is_no_text_is_not_sent() -> None:
    with pytest.raises(errors.CardError, match="cannot be sent"):
        seal(msgspec.structs.replace(REFUSAL, message="\ud800"))


def test_numbers_beyond_int64_are_no_geometry() -> None:
    with pytest.raises(errors.CardError, match="beyond the address space"):
        geometry(msgspec.structs.replace(WORKER, base=(1 << 63, *WORKER.base[1:])))


@pytest.mark.parametrize(
    "body",
    [b"\xdc\0\0", b"\xdc\0\2\xc0", b"\xdc\4\1" + b"\xc0" * 1025, b"\xdc\0\1\x91\xc0", b"\x91\xc0"],
    ids=["none", "one is missing", "too many", "no struct", "another array"],
)
def test_what_is_no_message_said_together_is_refused(body: bytes) -> None:
    with pytest.raises(errors.CardError):
        unseal(MAGIC + checksum(body) + body, ToPrefill)


def test_another_release_is_named_among_others() -> None:
    later = encode(msgspec.structs.replace(HELLO, protocol=PROTOCOL + 1))
    with pytest.raises(errors.ProtocolError, match=f"speaks protocol {PROTOCOL + 1}"):
        unseal(together([encode(Done("r", 1, 1)), later]), ToPrefill)
