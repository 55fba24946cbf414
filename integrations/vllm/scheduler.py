"""The scheduler's half: tokens of a request that come from elsewhere, holds, and the orders to workers.

Nothing here moves bytes or waits. Requests are read by the names that vLLM gives their fields.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.legs import host_and_port
from kvplan.integrations.shared.names import again, prompt_digest, salted
from kvplan.integrations.shared.note import PrefillNote
from kvplan.integrations.vllm.adapters import adapter_identity, nowhere
from kvplan.integrations.vllm.handovers import HandOvers
from kvplan.integrations.vllm.metadata import (
    BlockIds,
    GroupName,
    HoldOrder,
    LoadOrder,
    PromptChunk,
    RemotePrefill,
    StepOrders,
    WorkerFacts,
    early_prefill,
    remote_prefill,
    transfer_id,
    transfer_params,
)
from kvplan.integrations.vllm.prompts import OfferedPrompt, OfferedPrompts
from kvplan.runtime.ops import logs

HASH_BYTES = 32
# Seconds before the end of decode's hold after which nothing asks for it any more: clocks differ, and requests wait.
MARGIN = 2.0
# The states in which a prefill request has ended well: its blocks hold the requested tokens.
CAPPED = "FINISHED_LENGTH_CAPPED"
SERVED = (CAPPED, "FINISHED_STOPPED")
NOTHING = StepOrders()


class EngineRequest(Protocol):
    """The fields of vLLM's request that are read, and on prefill corrected."""

    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    max_tokens: int
    prompt_token_ids: list[int] | None
    kv_transfer_params: dict[str, Any] | None
    block_hashes: list[bytes]

    @property
    def output_token_ids(self) -> Sequence[int]:
        """The generated tokens."""

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the prompt and generated ones."""

    @property
    def all_token_ids(self) -> Sequence[int]:
        """The tokens of the prompt and generated ones."""


@dataclass(frozen=True, slots=True)
class GroupTable:
    """One of the engine's groups: its number in the engine's tables, and for a state the scratch slots that follow it.

    `scratch` is None for a group of tokens. A group that `forgets` keeps only what the next token needs: a
    state, or the tokens of a window.
    """

    number: int
    scratch: int | None = None
    forgets: bool = False

    def of(self, tables: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return block ids by position; for a state its slot, the last one before scratch slots."""
        ids = tuple(tables[self.number])
        if self.scratch is None or not ids:
            return ids
        return (ids[max(0, len(ids) - 1 - self.scratch)],)


@dataclass(slots=True)
class ConnectorScheduler:
    """The orders to workers in the next step. `tables` are the groups that are moved, in the engine's order.

    Decode always computes the `recomputed` last tokens of a prompt: the last one, from which the next is sampled, and
    with drafts of several modules the tokens that they look ahead to. An engine that does not decode loads nothing,
    whatever a request says. `refuses` says why a request may not name a host, empty if it may. `locate` finds the
    folder of a LoRA by its name. With `offers` decode may have the computed part of a prompt early. Tokens that were
    loaded from prefill or generated after that are kept for `next_turn` seconds, 0 for not at all: for the
    conversation's next prefill, or for the engine that continues a request handed over.
    """

    engine: str
    tables: tuple[GroupTable, ...]
    recomputed: int = 1
    decodes: bool = True
    refuses: Callable[[str], str] = lambda host: ""
    locate: Callable[[str], str | None] = nowhere
    workers: dict[int, WorkerFacts] = field(default_factory=dict)
    offers: bool = True
    next_turn: float = 0.0
    _prompts: OfferedPrompts = field(default_factory=OfferedPrompts)
    _handovers: HandOvers = field(default_factory=HandOvers)
    _shortened: set[str] = field(default_factory=set)
    _remote: dict[str, RemotePrefill] = field(default_factory=dict)
    _taken: dict[str, tuple[str, str]] = field(default_factory=dict)
    _local: dict[str, int] = field(default_factory=dict)
    _loading: set[str] = field(default_factory=set)
    _next: StepOrders = NOTHING

    @property
    def forgets(self) -> bool:
        """Whether prefill must stop at the token at which decode continues, because earlier content is forgotten."""
        return any(table.forgets for table in self.tables)

    @property
    def quiet(self) -> bool:
        """Whether there are no orders to workers, whatever the step computes, as in most steps."""
        return self._next == NOTHING and not self._prompts.by_request

    @property
    def _prefills(self) -> bool:
        """Whether this engine answers peers that ask for its holds."""
        return bool(self.workers) and all(worker.address for worker in self.workers.values())

    def registered(self, workers: Sequence[WorkerFacts]) -> None:
        """Take all workers' facts after their memory is registered. Raises ConnectorError (I008), at start-up."""
        numbers = sorted(worker.worker for worker in workers)
        if numbers != list(range(len(numbers))):
            help = "report it with the engine's parallel sizes: the side numbers them otherwise than vLLM"
            raise ConnectorError("I008", f"the engine's workers are {numbers} in the layout, not each one once", help)
        self.workers = {worker.worker: worker for worker in workers}
        addresses = tuple(self.workers[number].address for number in sorted(numbers)) if self._prefills else ()
        self._next = replace(self._next, addresses=addresses)

    def arrived(self, request: EngineRequest) -> None:
        """Take a new request: read the prefill engine that it names, and prepare one that is to be prefilled."""
        params = request.kv_transfer_params or {}
        self._handovers.arrived(request, params, keeps=self.next_turn > 0)
        if params.get("do_remote_decode") and self._answers(request):
            shared = transfer_id(params)
            digest = self._digest(request, request.num_prompt_tokens) if shared else ""
            if not params.get("whole_prompt"):
                self._stop_short(request)
            if shared:
                self._prompts.add(request.request_id, OfferedPrompt(shared, digest, request.num_prompt_tokens))
        # After that, because states and windows are loaded at the end of the shortened prompt.
        if params.get("do_remote_prefill") or _continues(params):
            self._read(request, params)

    def matched(self, request: EngineRequest, local: int) -> int:
        """Return how many tokens after the `local` ones come from the prefill engine that `request` names."""
        remote = self._remote.get(request.request_id)
        if remote is None:
            return 0
        self._local[request.request_id] = local
        # Decode continues from a state or a window that ends before the tokens that it computes.
        return max(0, min(request.num_prompt_tokens - self.recomputed, remote.tokens) - local)

    def allocated(self, request: EngineRequest, tables: Sequence[Sequence[int]], external: int) -> None:
        """Order the load of `external` tokens, whose blocks are allocated; with none, all of them are here already."""
        local, remote = self._local.pop(request.request_id, 0), self._remote.pop(request.request_id, None)
        if remote is None:
            return
        if external:
            self._loading.add(request.request_id)
        tokens, blocks = (local, local + external), self._ids(tables) if external else ()
        self._order(loads=LoadOrder(request.request_id, tokens, blocks, remote))

    def finished(
        self, request: EngineRequest, tables: Sequence[Sequence[int]], state: str
    ) -> tuple[bool, dict[str, object] | None]:
        """Return whether blocks are kept for decode after the request ended in `state`, and the client's parameters."""
        shortened = request.request_id in self._shortened
        self._shortened.discard(request.request_id)
        self._local.pop(request.request_id, None)
        self._taken.pop(request.request_id, None)
        if request.request_id in self._loading:
            self._order(cancels=request.request_id)
        if (remote := self._remote.pop(request.request_id, None)) is not None:
            # It ended before it was scheduled: prefill still has its blocks.
            self._order(loads=LoadOrder(request.request_id, (0, 0), (), remote))
        params, blocks = request.kv_transfer_params or {}, self._ids(tables)
        prompt = self._prompts.remove(request.request_id)
        asked = params.get("do_remote_decode")
        if self._handovers.ended(request, params) and state == CAPPED and any(blocks):
            return self._keep(request, blocks, transfer_id(params))
        if not asked and params.get("do_remote_prefill") and state in SERVED and any(blocks):
            return self._keep(request, blocks)
        if not asked or not self._answers(request) or state not in SERVED or not any(blocks):
            if prompt is not None:
                self._order(withdrawals=prompt.name)
            return False, None
        held = self._prefilled(request, prompt, blocks)
        shared = held.request if prompt is not None else ""
        note = b"" if shortened else _note(request)
        self._order(holds=HoldOrder(request.request_id, held.tokens, held.blocks, held.prompt, shared, note=note))
        return True, transfer_params(held, len(self.workers))

    def _keep(
        self, request: EngineRequest, blocks: BlockIds, shared: str = ""
    ) -> tuple[bool, dict[str, object] | None]:
        """Keep loaded and generated tokens for the next turn, or for the engine that continues a `shared` request.

        Nothing is kept if this engine keeps nothing, or if a state is ahead.
        """
        # The last token was sampled, but not computed.
        tokens = request.num_tokens - 1
        whole = request.num_computed_tokens >= tokens
        # A state includes all computed tokens, which may be more, and with drafts it is in another slot.
        stands = all(table.scratch is None for table in self.tables) or (
            request.num_computed_tokens == tokens and not any(table.scratch for table in self.tables)
        )
        if not (self.next_turn and self._answers(request) and whole and stands):
            return False, None
        # The engine that continues may know only all tokens so far, and which engine has them.
        digest = self._digest(request, request.num_tokens if shared else tokens)
        held = self._remote_of(shared or request.request_id, tokens, blocks, digest)
        self._order(holds=HoldOrder(request.request_id, tokens, blocks, held.prompt, shared, next_turn=True))
        until = time.time() + self.next_turn
        return True, transfer_params(replace(held, until=until), len(self.workers), goes_on=bool(shared))

    def loaded(self, requests: Iterable[str]) -> None:
        """Forget loads that all workers have finished or given up: a cancel would hit the next request of the name."""
        over = set(requests)
        self._loading -= over
        self._next = replace(self._next, cancels=tuple(one for one in self._next.cancels if one not in over))

    def scheduled(self, output: Any) -> None:
        """Take the chunks that a step computes, by vLLM's SchedulerOutput."""
        if not self.offers or not self._prompts.by_request:
            return
        for prompt, tokens in self._prompts.step(output):
            blocks = tuple(() if table.scratch is not None else table.of(prompt.tables) for table in self.tables)
            self._order(chunks=PromptChunk(prompt.name, tokens, prompt.end, blocks))

    def orders(self) -> StepOrders:
        """Return the orders to workers in this step, each order once."""
        orders, self._next = self._next, NOTHING
        return orders

    def _order(self, **one: Any) -> None:
        """Add an order to the next step's, by its field of StepOrders."""
        self._next = replace(self._next, **{name: (*getattr(self._next, name), order) for name, order in one.items()})

    def _read(self, request: EngineRequest, params: Mapping[str, object]) -> None:
        remote = remote_prefill(params) or self._early(request, params)
        if not self.decodes:
            _refused(request, "this engine does not decode", remote)
        elif remote is None:
            _refused(request, "they name no held request")
        elif why := self.refuses(remote.host):
            _refused(request, why, remote)
        elif (remote.engine, remote.request) in self._taken.values():
            _refused(request, "another request has what they name", remote)
        elif remote.until and remote.until < time.time() + MARGIN:
            _refused(request, "what decode kept of the turn before has expired", remote, logs.INFO)
        elif remote.until and self.forgets and remote.tokens > request.num_prompt_tokens - self.recomputed:
            _refused(request, "the prompt ends before the states and windows that decode kept", remote, logs.INFO)
            self._order(loads=LoadOrder(request.request_id, (0, 0), (), remote))
        elif not (remote.early or self._is_prompt(request, remote)):
            # Its bytes would belong to another text, and every prompt that begins like this one would find them.
            _refused(request, "another prompt was prefilled", remote)
            self._order(loads=LoadOrder(request.request_id, (0, 0), (), remote))
        else:
            self._remote[request.request_id] = remote
            self._taken[request.request_id] = remote.engine, remote.request
            self._hide_blocks(request)

    def _hide_blocks(self, request: EngineRequest) -> None:
        """Hide the blocks of a loaded request from other prompts, in the pool and in an offload tier.

        A load writes only the last tokens of a window, but the engine regards the block in which it begins as complete.
        """
        if any(table.forgets and table.scratch is None for table in self.tables):
            request.block_hashes[:] = [os.urandom(HASH_BYTES) for _ in request.block_hashes]

    def _stop_short(self, request: EngineRequest) -> None:
        """Prefill only up to the token at which decode continues, so that states and windows end there.

        The token sampled after that is not the first token.
        """
        count = self.recomputed
        if not self.forgets or request.num_prompt_tokens <= count:
            return
        assert request.prompt_token_ids is not None
        del request.prompt_token_ids[-count:]
        del request._all_token_ids[-count:]  # type: ignore[attr-defined]
        request.num_prompt_tokens -= count
        request.max_tokens = 1
        self._shortened.add(request.request_id)

    def _is_prompt(self, request: EngineRequest, remote: RemotePrefill) -> bool:
        """Whether a prompt was prefilled: its digest is of the held tokens, or of the whole prompt."""
        counts = dict.fromkeys((remote.tokens, request.num_prompt_tokens))
        return bool(remote.prompt) and any(remote.prompt == self._digest(request, count) for count in counts)

    def _answers(self, request: EngineRequest) -> bool:
        """Whether decode can load a request that is prefilled here: not if it needs logprobs of the whole prompt."""
        return self._prefills and _loadable(request)

    def _early(self, request: EngineRequest, params: Mapping[str, object]) -> RemotePrefill | None:
        """Return a prompt that prefill may be computing, named by what both engines know of it."""
        if not transfer_id(params) or not _loadable(request):
            return None
        tokens = request.num_prompt_tokens
        return early_prefill(params, self._digest(request, tokens), tokens)

    def _shared(self, prompt: OfferedPrompt, computed: int) -> str:
        """Return the name by which a prompt is held: that of its offers, or its second name if those are invalid."""
        if not prompt.preempted and computed >= prompt.end:
            return prompt.shared
        self._order(withdrawals=prompt.name)
        return again(prompt.shared)

    def _ids(self, tables: Sequence[Sequence[int]]) -> BlockIds:
        return tuple(table.of(tables) for table in self.tables)

    def _digest(self, request: EngineRequest, tokens: int) -> str:
        """Return the digest of the first `tokens` tokens, empty if the prompt has no ids. It takes a millisecond.

        Requests of other LoRA weights compute other caches; those of another salt share none.
        """
        if not _has_ids(request):
            return ""
        count = min(tokens, request.num_tokens)
        features = getattr(request, "mm_features", None) or ()
        also = [f"shown {feature.identifier}" for feature in features if feature.mm_position.offset < count]
        if lora := getattr(request, "lora_request", None):
            also.append(f"lora {adapter_identity(lora, self.locate)}")
        if salt := getattr(request, "cache_salt", None):
            also.append(salted(salt))
        return prompt_digest(request.all_token_ids[:count], also)

    def _prefilled(self, request: EngineRequest, offered: OfferedPrompt | None, blocks: BlockIds) -> RemotePrefill:
        """Return the request in the form for its client."""
        tokens = request.num_computed_tokens
        if offered is not None:
            # Both engines name it by the whole prompt, even if this one stopped short of its end.
            return self._remote_of(self._shared(offered, tokens), min(tokens, offered.end), blocks, offered.digest)
        digest = self._digest(request, min(tokens, request.num_prompt_tokens))
        return self._remote_of(request.request_id, tokens, blocks, digest)

    def _remote_of(self, name: str, tokens: int, blocks: BlockIds, prompt: str) -> RemotePrefill:
        """Return this engine's hold by a name, in the form for other engines."""
        first = self.workers[min(self.workers)]
        host, port = host_and_port(first.address)
        # A stage of a pipeline knows only its own groups.
        names = zip(*(worker.groups for worker in self.workers.values()), strict=True)
        groups = tuple(next((group for group in each if group.name), GroupName()) for each in names)
        return RemotePrefill(self.engine, name, host, port, tokens, groups, blocks, first.key, prompt)


def _continues(params: Mapping[str, object]) -> bool:
    """Whether the engine that decoded the previous turn holds it for this one, which is to be prefilled."""
    return bool(params.get("do_remote_decode") and params.get("remote_request_id") and params.get("remote_block_ids"))


def _loadable(request: EngineRequest) -> bool:
    """Whether the caches of a prompt are all that decode needs of it: not if logprobs of all of it are asked for."""
    return _has_ids(request) and not getattr(request, "skip_reading_prefix_cache", False)


def _has_ids(request: EngineRequest) -> bool:
    """Whether a prompt is only token ids: prompts with embeddings cannot be told apart."""
    return request.prompt_token_ids is not None and getattr(request, "prompt_embeds", None) is None


def _note(request: EngineRequest) -> bytes:
    """Return the first token for a decode engine that does not compute it; a scheduler does not know its logprob."""
    return PrefillNote(int(request.output_token_ids[0])).encode() if request.output_token_ids else b""


def _refused(request: EngineRequest, why: str, remote: RemotePrefill | None = None, level: int = logs.WARNING) -> None:
    """Log that the request's parameters are refused; it is computed here as if it named no engine."""
    held = {"held": remote.held_name} if remote else {}
    logs.event(level, "parameters refused", request=request.request_id, **held, why=why)
