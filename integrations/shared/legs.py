"""Legs: what a router sends to either engine of a pair. Each connector says it for its own engine, in `legs.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
# Gives the JSON of a URL.
Get = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """Where the first prefill worker of an engine answers, and the engine's public key, empty without keys."""

    host: str
    port: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class PairedRequest:
    """A request that two engines are asked at once. With `whole` decode computes no token of its prompt.

    Otherwise prefill leaves out the last token, which decode computes: a state then stands where decode goes on.
    """

    room: int
    whole: bool


@dataclass(frozen=True, slots=True)
class EngineLegs:
    """How engines of one kind are asked over HTTP. `owner` is who owns models, as their `/v1/models` says.

    `fields` are those of a body that only a router sets. A decode engine that `computes_last` computes the end of a
    prompt itself, and so the first token; others take that from prefill. Prefill `tells_logprob` if what it hands on
    has the first token's logprob.
    `prefill` and `decode` make the two bodies of a client's one. `record` finds the URL at which a prefill engine says
    where its workers answer; None if each of its answers does. `address` is what such a record, or such an answer,
    says; None if it says nothing.
    """

    owner: str
    fields: frozenset[str]
    computes_last: bool
    tells_logprob: bool
    prefill: Callable[[Body, PairedRequest], Body]
    decode: Callable[[Body, PairedRequest, WorkerAddress], Body]
    address: Callable[[Any], WorkerAddress | None]
    record: Callable[[str, Get], Awaitable[str]] | None = None


def only_first_token(body: Body) -> Body:
    """A client's body, asked for one token and not in a stream. What forbids an early end forbids it for that token."""
    sent = {name: value for name, value in body.items() if name != "stream_options"} | {"stream": False}
    for limit in ("max_tokens", "max_completion_tokens"):
        if limit in sent or limit == "max_tokens":
            sent[limit] = 1
    if sent.get("min_tokens"):
        sent["min_tokens"] = 1
    return sent


def host_and_port(address: str) -> tuple[str, int]:
    """What tcp://HOST:PORT says. Raises ValueError."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not host:
        raise ValueError(f"{address} has no host")
    return host, int(port)
