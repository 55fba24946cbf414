"""Prompts that are offered while they are computed: the tokens that each step of an engine's scheduler adds to them.

vLLM's objects are read by the names of their fields.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kvplan.integrations.shared.names import held_name
from kvplan.plan.types import Interval


@dataclass(slots=True)
class OfferedPrompt:
    """A prompt that a router calls `shared`. This engine computes its tokens before `end`; `digest` is of the whole
    prompt.

    `tables` are the engine's block ids by group, of `computed` tokens. A `preempted` prompt is computed again: other
    requests have had the offered blocks meanwhile, even if it gets them again.
    """

    shared: str
    digest: str
    end: int
    tables: list[list[int]] = field(default_factory=list)
    computed: int = 0
    preempted: bool = False

    @property
    def name(self) -> str:
        return held_name(self.shared, self.digest)

    def begin(self, blocks: Sequence[Sequence[int]], end: int) -> Interval | None:
        """Return the tokens that its first step computes, up to `end`.

        They include a prefix that was found, because another request of the same step may be computing it.
        """
        self.preempted = self.preempted or bool(self.tables)
        self.tables = [list(ids) for ids in blocks]
        return self._up_to(end)

    def go_on(self, blocks: Sequence[Sequence[int]] | None, first: int, end: int) -> Interval | None:
        """Return the tokens [first, end) of its next step, which gives it new blocks; None after all are computed."""
        self.preempted = self.preempted or first != self.computed
        for table, ids in zip(self.tables, blocks or (), strict=False):
            table.extend(ids)
        return self._up_to(end)

    def _up_to(self, end: int) -> Interval | None:
        first, self.computed = self.computed, end
        return None if self.preempted or first >= self.end else (first, end)


class OfferedPrompts:
    """The prompts of an engine that are being computed, `by_request`."""

    def __init__(self) -> None:
        self.by_request: dict[str, OfferedPrompt] = {}

    def add(self, request: str, prompt: OfferedPrompt) -> None:
        """Add a new request, unless another one has its name: each is in blocks of its own."""
        if all(other.name != prompt.name for other in self.by_request.values()):
            self.by_request[request] = prompt

    def remove(self, request: str) -> OfferedPrompt | None:
        """Remove a request that is over."""
        return self.by_request.pop(request, None)

    def step(self, output: Any) -> Iterator[tuple[OfferedPrompt, Interval]]:
        """Yield each prompt with its tokens in a step, by vLLM's SchedulerOutput. No step may be left out."""
        cached, scheduled = output.scheduled_cached_reqs, output.num_scheduled_tokens
        preempted = getattr(output, "preempted_req_ids", None) or ()
        for request in self.by_request.keys() & {*preempted, *cached.resumed_req_ids}:
            self.by_request[request].preempted = True
        for new in output.scheduled_new_reqs:
            if (prompt := self.by_request.get(new.req_id)) is not None:
                end = new.num_computed_tokens + scheduled[new.req_id]
                yield from _chunk(prompt, prompt.begin(new.block_ids, end))
        columns = cached.req_ids, cached.new_block_ids, cached.num_computed_tokens
        for request, blocks, first in zip(*columns, strict=True):
            if (prompt := self.by_request.get(request)) is not None:
                yield from _chunk(prompt, prompt.go_on(blocks, first, first + scheduled[request]))


def _chunk(prompt: OfferedPrompt, tokens: Interval | None) -> Iterator[tuple[OfferedPrompt, Interval]]:
    if tokens is not None:
        yield prompt, tokens
