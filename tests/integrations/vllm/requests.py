"""Requests as vLLM's scheduler has them, as far as the connector looks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kvplan.integrations.shared.names import prompt_digest
from kvplan.integrations.vllm.metadata import GroupName, RemotePrefill, WorkerFacts, transfer_params

TOKENS = GroupName("kv", "tokens")
STATE = GroupName("state", "state")


@dataclass
class FakeRequest:
    """A prompt of so many tokens."""

    request_id: str
    num_prompt_tokens: int
    kv_transfer_params: dict[str, Any] | None = None
    num_computed_tokens: int = 0
    max_tokens: int = 16
    prompt_token_ids: list[int] | None = field(default_factory=list)
    _all_token_ids: list[int] = field(default_factory=list)
    prompt_embeds: object = None
    skip_reading_prefix_cache: bool | None = None
    mm_features: list[Any] = field(default_factory=list)
    cache_salt: str | None = None
    lora_request: Any = None
    block_hashes: list[bytes] = field(default_factory=lambda: [b"first", b"second"])
    generated: list[int] = field(default_factory=list)

    @property
    def all_token_ids(self) -> list[int]:
        return [*(self.prompt_token_ids or ()), *self.generated]

    @property
    def output_token_ids(self) -> list[int]:
        return self.generated

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    def __post_init__(self) -> None:
        self.prompt_token_ids = list(range(self.num_prompt_tokens))
        self._all_token_ids = list(range(self.num_prompt_tokens))


def to_prefill(name: str, tokens: int) -> FakeRequest:
    return FakeRequest(name, tokens, {"do_remote_decode": True})


def to_decode(name: str, tokens: int, remote: RemotePrefill) -> FakeRequest:
    return FakeRequest(name, tokens, transfer_params(remote, 1))


def held(tokens: int, *blocks: tuple[int, ...], groups: tuple[GroupName, ...] = (TOKENS,)) -> RemotePrefill:
    prompt = prompt_digest(range(tokens))
    return RemotePrefill("p", "r-1", "127.0.0.1", 7600, tokens, groups, blocks or ((1, 2, 3),), prompt=prompt)


def facts(number: int = 0, groups: tuple[GroupName, ...] = (TOKENS,), key: str = "") -> WorkerFacts:
    return WorkerFacts(number, f"tcp://127.0.0.1:{7600 + number}", groups, key)
