"""The scheduler's orders to its workers, and two engines' messages to each other through a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.integrations.shared.names import LONGEST_TRANSFER, held_name
from kvplan.plan.types import Interval

# Block ids by group of an engine, by position, 0 for no block; of a state only its slot.
BlockIds = tuple[tuple[int, ...], ...]
NULL_BLOCK = 0


@dataclass(frozen=True, slots=True)
class GroupName:
    """The plan's name of an engine's group, empty if it stores nothing, and what its blocks are.

    `store` is `tokens`, `state` or `ring`.
    """

    name: str = ""
    store: str = "tokens"


@dataclass(frozen=True, slots=True)
class RemotePrefill:
    """A request that a prefill engine holds: the engine and its address, and its blocks, computed for `tokens`.

    `groups` are those of `blocks`; `key` is the engine's public key, empty without keys. `prompt` is the digest of the
    prefilled prompt, empty if unknown. Workers know the request by `held_name`. Prefill may not have received an
    `early` request yet: its blocks are unknown, and the engine's name may be empty. `until` is the time, in seconds
    since 1970, until which a decode engine keeps a request for the next turn; 0 for a prefill engine.
    """

    engine: str
    request: str
    host: str
    port: int
    tokens: int
    groups: tuple[GroupName, ...]
    blocks: BlockIds
    key: str = ""
    prompt: str = ""
    until: float = 0.0

    @property
    def address(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    @property
    def early(self) -> bool:
        return not self.groups

    @property
    def held_name(self) -> str:
        return held_name(self.request, self.prompt)


@dataclass(frozen=True, slots=True)
class HoldOrder:
    """Keep the blocks of a prefilled request, `tokens` of it, until decode has them.

    `prompt` is the digest of the prompt, `shared` a router's name of the request if it asks both engines at once. A
    hold for the `next_turn` may never be read, which is not an error. `note` is for its readers.
    """

    request: str
    tokens: int
    blocks: BlockIds
    prompt: str = ""
    shared: str = ""
    next_turn: bool = False
    note: bytes = b""

    @property
    def held_name(self) -> str:
        return held_name(self.shared or self.request, self.prompt)


@dataclass(frozen=True, slots=True)
class PromptChunk:
    """Tokens of the prompt `name` that a step computes; its first ones begin at 0. Decode asks for those before `end`.

    `blocks` are those of all tokens that are computed after the step.
    """

    name: str
    tokens: Interval
    end: int
    blocks: BlockIds


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Load `tokens` of a request into `blocks`. An order without tokens tells prefill that it may free its blocks."""

    request: str
    tokens: Interval
    blocks: BlockIds
    remote: RemotePrefill


@dataclass(frozen=True, slots=True)
class StepOrders:
    """A step's orders to workers. `addresses` has all prefill workers' addresses, once, when they are known.

    `cancels` are requests whose load is not needed any more. `chunks` are offered as the step computes them;
    `withdrawals` are names that are offered no more.
    """

    holds: tuple[HoldOrder, ...] = ()
    loads: tuple[LoadOrder, ...] = ()
    cancels: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    chunks: tuple[PromptChunk, ...] = ()
    withdrawals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """A worker's facts for its scheduler after it has registered its memory.

    `worker` is its number in the plan's order, `address` that of its prefill side, empty without one; `groups` are the
    plan's names of the engine's groups, empty for those without a layer on this worker. The model and the side, by
    digest and readable key, and the revision of the weights are the engine's.
    """

    worker: int
    address: str
    groups: tuple[GroupName, ...]
    key: str
    model: str = ""
    model_digest: str = ""
    side: str = ""
    side_key: str = ""
    revision: str = ""


def remote_prefill(params: Mapping[str, object]) -> RemotePrefill | None:
    """Read a prefilled request from `kv_transfer_params`, None if they are incomplete: any client can send them."""
    try:
        engine, request, host, key = (_text(params[name]) for name in TEXTS)
        prompt = _text(params.get("remote_prompt", ""))
        port, tokens = (_whole(params[name]) for name in ("remote_port", "remote_num_tokens"))
        groups = tuple(GroupName(*map(_text, _list(pair))) for pair in _list(params["remote_groups"]))
        until = _time(params.get("remote_blocks_expiry_time") or 0)
        tables = [_list(ids, tokens + SPARE_BLOCKS) for ids in _list(params["remote_block_ids"])]
        blocks = tuple(tuple(_whole(block) for block in ids) for ids in tables)
    except (KeyError, TypeError, ValueError):
        return None
    usable = engine and request and host and 0 < port < 65536 and len(groups) == len(blocks)
    return RemotePrefill(engine, request, host, port, tokens, groups, blocks, key, prompt, until) if usable else None


def early_prefill(params: Mapping[str, object], prompt: str, tokens: int) -> RemotePrefill | None:
    """Return a request with this digest that prefill may be computing, if a router says so; otherwise None."""
    try:
        host, port = _text(params["remote_host"]), _whole(params["remote_port"])
        engine, key = (_text(params.get(word) or "") for word in ("remote_engine_id", "remote_key"))
    except (KeyError, TypeError, ValueError):
        return None
    name = transfer_id(params)
    usable = name and host and 0 < port < 65536
    return RemotePrefill(engine, name, host, port, tokens, (), (), key, prompt) if usable else None


def transfer_id(params: Mapping[str, object]) -> str:
    """Return the name of a request from a router that asks both engines at once; empty without one, or if too long."""
    try:
        given = _text(params.get("transfer_id") or "")
    except ValueError:
        return ""
    return given if len(given.encode()) <= LONGEST_TRANSFER else ""


# Blocks of a group that may follow those of its tokens, because drafts look ahead. A block holds at least one token.
SPARE_BLOCKS = 64
MOST_GROUPS = 4096
TEXTS = ("remote_engine_id", "remote_request_id", "remote_host", "remote_key")


def transfer_params(remote: RemotePrefill, workers: int, goes_on: bool = False) -> dict[str, object]:
    """Return `kv_transfer_params` for the engine that is asked next, with the keys of vLLM's own connector.

    Routers pass them unread. The engine decodes; or if a decode engine keeps the request, it prefills the next turn,
    unless the request `goes_on` there.
    """
    kept = remote.until > 0
    return {
        "do_remote_prefill": goes_on or not kept,
        "do_remote_decode": kept and not goes_on,
        "remote_engine_id": remote.engine,
        "remote_request_id": remote.request,
        "remote_host": remote.host,
        "remote_port": remote.port,
        "remote_block_ids": [list(ids) for ids in remote.blocks],
        "remote_num_tokens": remote.tokens,
        "remote_prompt": remote.prompt,
        "remote_groups": [[group.name, group.store] for group in remote.groups],
        "remote_key": remote.key,
        "tp_size": workers,
        **({"remote_blocks_expiry_time": remote.until} if kept else {}),
    }


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > 4096:
        raise ValueError(value)
    value.encode()  # UnicodeEncodeError, a ValueError, for half a character
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 62:
        raise ValueError(value)
    return value


def _time(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e12:
        raise ValueError(value)
    return float(value)


def _list(value: object, most: int = MOST_GROUPS) -> list[object] | tuple[object, ...]:
    if not isinstance(value, list | tuple) or len(value) > most:
        raise ValueError(type(value))
    return value
