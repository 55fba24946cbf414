"""The cards that peers exchange, and the seal of all messages: msgpack after a magic word and a checksum."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar, get_args

import msgspec
import numpy as np

from kvplan.plan.types import Plan
from kvplan.runtime.errors import CardError, ProtocolError
from kvplan.runtime.memory.geometry import Geometry

# The first bytes of a message. Usually the decode half makes a connection and the prefill half accepts it. A message
# for the other half of its receiver begins with BACK.
MAGIC, BACK = b"kvplan1\n", b"kvplan2\n"
CHECKSUM = 16
HEAD = len(MAGIC) + CHECKSUM
LARGEST = 16 << 20
# The version of this release's protocol, which includes the layout of stages, and that of cards without a version.
PROTOCOL, UNVERSIONED = 14, 2
NONCE = 16
MOST_WORKERS = 1 << 16
MOST_PLANES = 1 << 16
MOST_FABRICS = 16
MOST_SETTINGS = 4096
MOST_TOGETHER = 1 << 10
# The first bytes of a msgpack array of up to 65,535 elements. No other message begins like this.
ARRAY, ARRAY_TAG = struct.Struct(">BH"), b"\xdc"
T = TypeVar("T")

Nonce = Annotated[bytes, msgspec.Meta(max_length=64)]
Text = Annotated[str, msgspec.Meta(max_length=256)]
Long = Annotated[str, msgspec.Meta(max_length=4096)]
Number = Annotated[int, msgspec.Meta(ge=0, le=MOST_WORKERS)]
Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 62))]
Column = Annotated[tuple[int, ...], msgspec.Meta(max_length=MOST_PLANES)]
Rows = Annotated[tuple[tuple[int, int, int], ...], msgspec.Meta(max_length=MOST_PLANES)]
MemTypes = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_PLANES)]
Addresses = Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_WORKERS)]
Settings = Annotated[dict[Text, Text], msgspec.Meta(max_length=MOST_SETTINGS)]


class EngineCard(msgspec.Struct, frozen=True, tag="engine"):
    """The card of a prefill engine: its identity, its model, and the addresses of its workers in the plan's order.

    `nonce` is that of the question. `generation` counts the registrations of the worker that answers. `settings`, by
    name, must be equal on both sides.
    """

    nonce: Nonce
    protocol: Count
    name: Text
    run: Text
    generation: Count
    model: Text
    model_digest: Text
    revision: Text
    scales: Text
    side: Text
    key: Long
    addresses: Addresses
    settings: Settings = {}


class WorkerCard(msgspec.Struct, frozen=True, tag="worker"):
    """The card of a worker: the addresses of its planes, by plane number, and the transport's metadata.

    `regions` are rows (address, bytes, device), `mem_types` NIXL's names of their memory. `fabrics` let peers read them
    without the worker's help. `stage` is the size in bytes of a buffer that the worker packs for peers, 0 for none.
    """

    nonce: Nonce
    run: Text
    generation: Count
    worker: Number
    plan: Text
    base: Column
    stride: Column
    page: Column
    count: Column
    device: Column
    region: Column
    regions: Rows
    metadata: bytes
    checksum: Nonce
    protocol: Count = UNVERSIONED
    fabrics: Annotated[tuple[Text, ...], msgspec.Meta(max_length=MOST_FABRICS)] = ()
    stage: Count = 0
    mem_types: MemTypes = ()


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """A decode worker's question for a card, with its own identity. `want` is engine or worker.

    `plan` is empty until the engine is known. `card` is the decode worker's own memory, if the pair pushes. `answers`
    are the addresses of its engine's workers if these also prefill: each may be asked over a connection that it made.
    `settings` are as in an EngineCard.
    """

    want: Text
    nonce: Nonce
    name: Text
    run: Text
    worker: Number
    model_digest: Text
    revision: Text
    scales: Text
    side: Text
    key: Long
    plan: Text
    card: WorkerCard | None
    protocol: Count = UNVERSIONED
    answers: Addresses = ()
    settings: Settings = {}


class Refusal(msgspec.Struct, frozen=True, tag="refusal"):
    """A refusal of a card. If `again`, a later question may succeed. An unreadable question gets an empty `nonce`."""

    code: Text
    message: Long
    again: bool
    nonce: Nonce


def seal(value: msgspec.Struct) -> bytes:
    """Return a message of `value` with a checksum. Raises as `encode` does."""
    return together([encode(value)])


def together(bodies: Sequence[bytes], magic: bytes = MAGIC) -> bytes:
    """Return encoded messages as one message with a checksum: one is sent as a map, several as an array of maps."""
    body = bodies[0] if len(bodies) == 1 else ARRAY.pack(0xDC, len(bodies)) + b"".join(bodies)
    return magic + checksum(body) + body


def encode(value: msgspec.Struct) -> bytes:
    """Return `value` as msgpack. Raises CardError if it is too large, or a text or number of it cannot be encoded."""
    try:
        body = msgspec.msgpack.encode(value)
    except (UnicodeError, OverflowError) as error:
        raise CardError(f"a message cannot be sent: {error}") from error
    if len(body) > LARGEST:
        raise CardError(f"a message of {len(body)} bytes is above {LARGEST}: register fewer regions, or ask for less")
    return body


def unseal(data: bytes, kind: Any, magic: bytes = MAGIC) -> list[Any]:
    """Return the values in a message, each of type `kind`: a struct or a union of structs. Unknown fields are ignored.

    Raises CardError if the bytes differ from those that were sealed, ProtocolError for another release's protocol.
    """
    body = _body_of(data, magic)
    return _decode_all(body, kind) if body[:1] == ARRAY_TAG else [_decode(body, kind)]


def _body_of(data: bytes, magic: bytes) -> bytes:
    """Return the body of a message. Raises CardError if the magic word or the checksum is wrong."""
    if len(data) > LARGEST + HEAD:
        raise CardError(f"a message of {len(data)} bytes is above {LARGEST}")
    if not data.startswith(magic):
        raise CardError("a message is not of this protocol: is the peer a kvplan of the same release?")
    body = data[HEAD:]
    if checksum(body) != data[len(MAGIC) : HEAD]:
        raise CardError("a message is truncated or corrupt: connect again")
    return body


def _decode_all(body: bytes, kind: Any) -> list[Any]:
    try:
        parts = _PARTS.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise CardError(f"messages that were said together cannot be read: {str(error)[:300]}") from error
    return [_decode(part, kind) for part in parts]


def _decode(body: bytes | msgspec.Raw, kind: Any) -> Any:
    try:
        value = _decoder(kind).decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        # For invalid UTF-8 and deep nesting msgspec raises ValueError and RecursionError.
        raise CardError(_decode_fault(body, kind, error)) from error
    _check_protocol(getattr(value, "protocol", PROTOCOL))
    return value


@functools.lru_cache(maxsize=64)
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return a cached decoder: making one takes longer than decoding a message."""
    return msgspec.msgpack.Decoder(kind)


_OUTLINE = _decoder(dict[str, msgspec.Raw])
_PARTS = _decoder(Annotated[list[msgspec.Raw], msgspec.Meta(min_length=1, max_length=MOST_TOGETHER)])


def _decode_fault(body: bytes | msgspec.Raw, kind: Any, error: Exception) -> str:
    """Return why a message cannot be decoded: a missing field, or msgspec's reason. May raise ProtocolError."""
    structs: dict[Any, type[msgspec.Struct]] = {one.__struct_config__.tag: one for one in get_args(kind) or (kind,)}
    try:
        fields = _OUTLINE.decode(body)
        tag = msgspec.msgpack.decode(fields.get("type", b"\xc0"), type=str)
        protocol = msgspec.msgpack.decode(fields["protocol"], type=int) if "protocol" in fields else PROTOCOL
    except (msgspec.MsgspecError, ValueError, RecursionError):
        fields, tag, protocol = {}, "", PROTOCOL
    if tag in structs:
        _check_protocol(protocol)
        known, defaults = structs[tag].__struct_fields__, structs[tag].__struct_defaults__
        missing = [name for name in known[: len(known) - len(defaults)] if name not in fields]
        if missing:
            return f"a message of type {tag} lacks the field `{missing[0]}`: the peer is of an older release, update it"
    names = " or ".join(sorted(one.__name__ for one in structs.values()))
    return f"a message is not a {names}: {str(error)[:300]}"


def _check_protocol(protocol: int) -> None:
    if protocol != PROTOCOL:
        side = "this side" if protocol > PROTOCOL else "that side"
        raise ProtocolError(f"the peer speaks protocol {protocol}, this release {PROTOCOL}: update {side}")


def checksum(data: bytes) -> bytes:
    """Return a digest of 16 bytes."""
    return hashlib.blake2b(data, digest_size=CHECKSUM).digest()


def describe(
    worker: int,
    plan: Plan,
    run: str,
    generation: int,
    geometry: Geometry,
    metadata: bytes,
    nonce: bytes = b"",
    fabrics: frozenset[str] = frozenset(),
) -> WorkerCard:
    """Return the card of a worker whose planes lie as `geometry` says."""
    columns: dict[str, Any] = {name: tuple(getattr(geometry, name).tolist()) for name in COLUMNS}
    regions = tuple((start, size, device) for start, size, device in geometry.regions.tolist())
    return WorkerCard(
        nonce=nonce,
        run=run,
        generation=generation,
        worker=worker,
        plan=plan.digest,
        regions=regions,
        mem_types=geometry.mem_types,
        metadata=metadata,
        checksum=checksum(metadata),
        protocol=PROTOCOL,
        fabrics=tuple(sorted(fabrics)),
        **columns,
    )


def with_stage(card: WorkerCard, metadata: bytes, stage: int) -> WorkerCard:
    """Return the card with a stage of buffers of `stage` bytes, which `metadata` must also cover."""
    return msgspec.structs.replace(card, metadata=metadata, checksum=checksum(metadata), stage=stage)


COLUMNS = ("base", "stride", "page", "count", "device", "region")


def geometry(card: WorkerCard) -> Geometry:
    """Return the planes of a card. Raises CardError if a number is not an int64."""
    try:
        columns: dict[str, Any] = {name: np.array(getattr(card, name), np.int64) for name in COLUMNS}
        regions = np.array(card.regions, np.int64).reshape(-1, 3)
    except OverflowError as error:
        raise CardError(f"worker {card.worker} sends an address or size beyond the address space") from error
    return Geometry(**columns, regions=regions, mem_types=card.mem_types)
