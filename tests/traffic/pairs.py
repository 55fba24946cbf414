"""A fleet whose requests move what they say: 1,000 bytes and a request a token, over one link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvplan.compiler.cost.links import LinkLoad
from kvplan.dsl.schema.fleet import DecodeFigures, PrefillFigures
from kvplan.dsl.schema.machine import CopyRate, MachineProfile
from kvplan.runtime.transfer.limits import Limits
from kvplan.traffic.loads import Loads, TransferLoads
from kvplan.traffic.runs import SimulatedPair

# A transfer takes 100 us, a slice 10, a request 1; a microsecond moves 1,000 bytes.
PROFILE = MachineProfile(
    name="made-up", transfer_us=100.0, slice_us=10.0, descriptor_us=1.0, wire=1e9, copies=(CopyRate(64, 1e9),)
)
BLOCK, BYTES = 16, 1000


def linear(tokens: int) -> Loads:
    return (LinkLoad(0, 0, tokens, BYTES * tokens, 0.0),)


PAIR = SimulatedPair(
    prefill=PrefillFigures(tokens_per_s=1_000_000),
    decode=DecodeFigures(us_per_token=1000),
    prefill_block=BLOCK,
    decode_block=BLOCK,
    loads=TransferLoads(linear),
    mode="pull",
    pieces=1,
    router="round_robin",
    limits=Limits(),
    cores=None,
    profile=PROFILE,
)


def prefill(pair: SimulatedPair = PAIR, **figures: Any) -> SimulatedPair:
    """The pair with other figures of prefill."""
    return replace(pair, prefill=replace(pair.prefill, **figures))


def decode(pair: SimulatedPair = PAIR, **figures: Any) -> SimulatedPair:
    """The pair with other figures of decode."""
    return replace(pair, decode=replace(pair.decode, **figures))
