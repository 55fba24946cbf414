"""What workers say to each other after they have met. Sealed as cards are; every number is checked where it is used."""

from __future__ import annotations

from typing import Annotated

import msgspec

from kvplan.runtime.control.card import EngineCard, Hello, Refusal, WorkerCard

MOST_NAMED = 1 << 14
MOST_SUMS = 1 << 16

Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=MOST_NAMED)]
Sums = Annotated[tuple[tuple[str, int, int], ...], msgspec.Meta(max_length=MOST_SUMS)]


class WireTable(msgspec.Struct, frozen=True, array_like=True):
    """A block table, a slot or a ring: `kind` is blocks, slot or ring; `ids` are int64, little endian.

    `first` is the position of the first block, or the number of tokens after which a slot or a ring stands.
    """

    kind: str
    first: int
    ids: bytes


class Claim(msgspec.Struct, frozen=True, tag="claim"):
    """Decode: hold these requests for me. Sent before anything is read, and again and again while it is.

    Those of them that are `fed` are read as chunks of them are offered; the others only when they are whole. `tables`
    are prefill's blocks as decode was told of them, for requests that are read whole and claimed for the first time.
    """

    heartbeat: int
    requests: Names
    fed: Names = ()
    tables: dict[str, dict[str, WireTable]] = {}


class Held(msgspec.Struct, frozen=True, tag="held"):
    """Prefill: which of the requests of claims up to `beat` are held, each with its hold's number, and which are not.

    One that is in neither is not whole yet. A claim is good for `lease` seconds.
    """

    heartbeat: int
    lease: float
    held: tuple[tuple[str, int], ...]
    lost: tuple[tuple[str, str], ...]


class Ask(msgspec.Struct, frozen=True, tag="ask"):
    """Decode: may I read `size` bytes of a request? `number` counts the asking worker's reads."""

    request: str
    number: int
    size: int


class Grant(msgspec.Struct, frozen=True, tag="grant"):
    """Prefill: read `number` may begin."""

    request: str
    number: int


class Spent(msgspec.Struct, frozen=True, tag="spent"):
    """Decode: read `number` is over, or will not begin."""

    request: str
    number: int


class Want(msgspec.Struct, frozen=True, tag="want"):
    """Decode: write me this request, where the pair pushes. `prefill` tables are empty where prefill knows its own."""

    request: str
    tokens: tuple[int, int]
    lengths: dict[str, tuple[int, int]]
    prefill: dict[str, WireTable]
    decode: dict[str, WireTable]


class Offer(msgspec.Struct, frozen=True, tag="offer"):
    """Prefill: tokens [first, end) of a request are there, in all layers or in `layers`; pages are named by `tables`.

    `number` counts the offers of a hold from 0. With `last`, no more come: states and rings move, too. Without tokens
    the whole request is meant, whose prefill tables decode knows.
    """

    request: str
    hold: int
    number: int
    tokens: tuple[int, int] | None
    layers: tuple[int, ...] | None
    tables: dict[str, WireTable]
    last: bool


class Wrote(msgspec.Struct, frozen=True, tag="wrote"):
    """Prefill: all of a request that this decode worker needs from here is written: `size` bytes."""

    request: str
    hold: int
    size: int


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Prefill: the request will not come from here."""

    request: str
    code: str
    message: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """Decode: nothing more of a request is needed from here.

    `sums` are checksums (cache, layer, digest) of what arrived of `asked`, over the tokens of `sample` (every, seed).
    `attempt` tells the answer from that to an earlier attempt at the same request.
    """

    request: str
    hold: int
    attempt: int
    sums: Sums = ()
    sample: tuple[int, int] | None = None
    asked: Want | None = None


class Confirmed(msgspec.Struct, frozen=True, tag="kept"):
    """Prefill's answer to Done: the hold lasted until now; or it did not, or bytes differ, and `problem` says so."""

    request: str
    attempt: int
    problem: str = ""
    code: str = ""


class Leave(msgspec.Struct, frozen=True, tag="leave"):
    """Decode: a request is given up. Where the pair pushes, prefill answers Stopped when it writes no more.

    With `alone`, this connection took the place of the one that it was wanted through, which is not listened to again.
    """

    request: str
    alone: bool = False


class Stopped(msgspec.Struct, frozen=True, tag="stopped"):
    """Prefill: nothing of a request that was left is written from here any more."""

    request: str


ToPrefill = Hello | Claim | Ask | Spent | Want | Done | Leave
ToDecode = EngineCard | WorkerCard | Refusal | Held | Grant | Offer | Wrote | Failed | Confirmed | Stopped
