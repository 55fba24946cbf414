"""What the scheduler tells its workers in a step, and what two engines tell each other through a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kvplan.integrations.shared.names import LONGEST_TRANSFER, held_name
from kvplan.plan.types import Interval

# Block ids by group of the engine that they are of, by position, 0 for no block; of a state its slot alone.
BlockIds = tuple[tuple[int, ...], ...]
NULL_BLOCK = 0


@dataclass(frozen=True, slots=True)
class GroupName:
    """An engine's group as the plan has it: its name, empty where nothing of it is stored, and what its blocks are.

    `store` is `tokens`, `state` or `ring`.
    """

    name: str = ""
    store: str = "tokens"


@dataclass(frozen=True, slots=True)
class RemotePrefill:
    """A request as a prefill engine holds it: who holds it, where it answers, and its blocks, computed for `tokens`.

    `groups` are those of `blocks`; `key` is the engine's public key, empty without keys. `prompt` is the digest of what
    was prefilled, empty where nobody said it. Workers know the request by `held_name`. Of one that is `early` prefill
    may not have heard yet: nobody knows its blocks, and the engine's name may be empty. `until` is the time, in seconds
    since 1970, after which a decode engine keeps a request for the next turn no longer; 0 where a prefill engine does.
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
    """Keep the blocks of a request that was prefilled, `tokens` of it, until decode has them.

    `prompt` is the digest of the prompt, `shared` what a router calls the request where it asks both engines at once.
    One for the `next_turn` may never be read, and that is no fault. `note` is what its readers get.
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
    """Tokens of the prompt `name` that a step computes; the first ones of it are 0. Decode asks for those before `end`.

    `blocks` are those of all that is computed after the step.
    """

    name: str
    tokens: Interval
    end: int
    blocks: BlockIds


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """Have `tokens` of a request moved into `blocks`. Of no tokens, prefill is told that it may free its blocks."""

    request: str
    tokens: Interval
    blocks: BlockIds
    remote: RemotePrefill


@dataclass(frozen=True, slots=True)
class StepOrders:
    """What workers have to begin in one step. `addresses` of all prefill workers, once, when they are known.

    `cancels` are requests whose load is not wanted any more. `chunks` are offered as the step computes them;
    `withdrawals` are names of which no more will be.
    """

    holds: tuple[HoldOrder, ...] = ()
    loads: tuple[LoadOrder, ...] = ()
    cancels: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    chunks: tuple[PromptChunk, ...] = ()
    withdrawals: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a worker tells its scheduler when it has registered its memory.

    `worker` is its number in the plan's order, `address` where its prefill side answers, empty where it has none;
    `groups` are the plan's names of the engine's groups, empty for those of which this worker has no layer. The model
    and the side, by digest and readable key, and the revision of the weights are the engine's.
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
    """What `kv_transfer_params` say of a prefilled request, None where they are not whole: anybody can send them."""
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
    """A request of this digest that prefill may be computing, where a router says it is; None where it says nothing."""
    try:
        host, port = _text(params["remote_host"]), _whole(params["remote_port"])
        engine, key = (_text(params.get(word) or "") for word in ("remote_engine_id", "remote_key"))
    except (KeyError, TypeError, ValueError):
        return None
    name = transfer_id(params)
    usable = name and host and 0 < port < 65536
    return RemotePrefill(engine, name, host, port, tokens, (), (), key, prompt) if usable else None


def transfer_id(params: Mapping[str, object]) -> str:
    """What a router that asks both engines at once calls a request; empty where it does not, or for too long."""
    try:
        given = _text(params.get("transfer_id") or "")
    except ValueError:
        return ""
    return given if len(given.encode()) <= LONGEST_TRANSFER else ""


# Blocks of a group that may follow those of its tokens: drafts look ahead. A block holds a token at least.
SPARE_BLOCKS = 64
MOST_GROUPS = 4096
TEXTS = ("remote_engine_id", "remote_request_id", "remote_host", "remote_key")


def transfer_params(remote: RemotePrefill, workers: int, goes_on: bool = False) -> dict[str, object]:
    """`kv_transfer_params` for the engine that is asked next, by the names of vLLM's own connector.

    Routers pass them unread. That engine is to decode, or, for what a decode engine keeps, to prefill the next turn,
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
    value.encode()  # UnicodeEncodeError, a ValueError, where half a character is in it
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
