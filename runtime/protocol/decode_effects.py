"""Effects of the decode core: commands, messages and completions that go in, and what comes out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kvplan.plan.errors import KvplanError
from kvplan.plan.layers import Layers
from kvplan.plan.types import Runs
from kvplan.runtime.control.messages import AskBuffer, ReturnBuffer, Sums
from kvplan.runtime.protocol.effects import Input, Output
from kvplan.runtime.protocol.loads import KnownEngine, Load, LoadPart, PrefillPeer

# Commands


class EngineMet(Input, frozen=True, eq=False):
    """A prefill engine is connected. With `follow`, it takes the place of one of the same workers that is gone."""

    engine: KnownEngine
    follow: bool


class Begin(Input, frozen=True, eq=False):
    """Have a request moved here from an engine."""

    load: Load
    engine: KnownEngine


class Fail(Input, frozen=True, eq=False):
    """End a request with an error, whatever moves, or before it was begun. One that has ended stays as it is."""

    load: Load
    error: KvplanError


class DropEngine(Input, frozen=True, eq=False):
    """An engine is dropped: its requests fail, except those that all of its workers have confirmed."""

    engine: KnownEngine
    why: str


class FollowEngine(Input, frozen=True, eq=False):
    """The workers of this engine take the place of those of the same memory that are gone."""

    engine: KnownEngine


class PeersGone(Input, frozen=True, eq=False):
    """These workers cannot write any more: what they sent before may still land."""

    peers: frozenset[PrefillPeer]


class PeersDead(Input, frozen=True, eq=False):
    """The processes of these peers have ended, by the transport's names: what they sent before may still land."""

    names: frozenset[str]


# What a peer says, and what came of outputs


class Heard(Input, frozen=True, eq=False):
    """A message of a prefill worker. It may be the last one of a line that is `broken`."""

    engine: KnownEngine
    peer: PrefillPeer
    message: Any
    broken: bool = False


class PartRead(Input, frozen=True, eq=False):
    """The wire has copied all that a part reads; a copy from the stage may still be under way."""

    part: LoadPart


class PartPlaced(Input, frozen=True, eq=False):
    """All that was handed over of a part is in its place."""

    part: LoadPart


class PartFailed(Input, frozen=True, eq=False):
    """Something went wrong between here and one prefill worker."""

    part: LoadPart
    cause: Exception


class Returned(Input, frozen=True, eq=False):
    """A writer returned a buffer. `moved` says that it was filled."""

    part: LoadPart
    number: int
    moved: bool


class PartSummed(Input, frozen=True, eq=False):
    """The checksums of a part are computed."""

    part: LoadPart
    sums: Sums


class PartSettled(Input, frozen=True, eq=False):
    """Nothing that was handed over of a part that was stopped can be written any more."""

    part: LoadPart


# Outputs


class Foresee(Output, frozen=True, eq=False):
    """A part will probably move these runs in one piece: prepare that while nobody has anything else to do."""

    part: LoadPart
    runs: Mapping[str, Runs]


class Move(Output, frozen=True, eq=False):
    """Read these runs by pair of a part, in all layers or some. After the `last` one no more come."""

    part: LoadPart
    layers: Layers | None
    runs: Mapping[str, Runs]
    last: bool


class AskWrite(Output, frozen=True, eq=False):
    """Ask a prefill worker to write a request."""

    load: Load
    part: LoadPart


class Buffer(Output, frozen=True, eq=False):
    """A writer asks for a buffer of the stage here, or returns one."""

    load: Load
    part: LoadPart
    message: AskBuffer | ReturnBuffer


class Sum(Output, frozen=True, eq=False):
    """Compute the checksums of what came from a prefill worker."""

    load: Load
    part: LoadPart


class Stop(Output, frozen=True, eq=False):
    """Post nothing more of a part: it is given up. It is `PartSettled` when nothing of it can be written any more."""

    part: LoadPart


class Ended(Output, frozen=True, eq=False):
    """A request has ended."""

    load: Load


class EngineLost(Output, frozen=True, eq=False):
    """An engine cannot be used any more."""

    engine: KnownEngine
    error: KvplanError
