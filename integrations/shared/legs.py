"""Legs: the requests that a router sends to either engine of a pair. Each connector has its engine's in `legs.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
# Returns the JSON of a URL.
Get = Callable[[str], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """The address of an engine's first prefill worker, and the engine's public key, empty without keys."""

    host: str
    port: int
    key: str = ""


@dataclass(frozen=True, slots=True)
class PairedRequest:
    """A request sent to two engines at once. With `whole` decode computes no token of its prompt.

    Otherwise prefill leaves out the last token, which decode computes, so that a state ends before it.
    """

    room: int
    whole: bool


@dataclass(frozen=True, slots=True)
class EngineLegs:
    """The HTTP requests of one kind of engine. `owner` is the owner of models in its `/v1/models`.

    `fields` are those of a body that only a router sets. A decode engine that `computes_last` computes the end of a
    prompt itself, and so the first token; others take that from prefill. Prefill `tells_logprob` if its note has the
    first token's logprob. `prefill` and `decode` make the two bodies of a client's one. `record` finds the URL at which
    a prefill engine publishes its workers' address; None if each of its answers has it. `address` reads such a record
    or answer; it returns None if that has no address.
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
    """Return a client's body for one token, not in a stream. A minimum of tokens becomes one token, too."""
    sent = {name: value for name, value in body.items() if name != "stream_options"} | {"stream": False}
    for limit in ("max_tokens", "max_completion_tokens"):
        if limit in sent or limit == "max_tokens":
            sent[limit] = 1
    if sent.get("min_tokens"):
        sent["min_tokens"] = 1
    return sent


def host_and_port(address: str) -> tuple[str, int]:
    """Split tcp://HOST:PORT. Raises ValueError."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    if not host:
        raise ValueError(f"{address} has no host")
    return host, int(port)
