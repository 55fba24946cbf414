"""Offers of a prompt while it is computed: each step's tokens go to decode, layer by layer if possible.

Only whole blocks before the last one move early. The end of a prompt waits until the engine has ended it well and
keeps its blocks: states and rings move with the last part, and decode has none of them before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from kvplan.integrations.vllm.metadata import HoldOrder, PromptChunk
from kvplan.integrations.vllm.tables import BlockTables
from kvplan.plan.block_tables import Table
from kvplan.plan.layers import batches
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.events import ComputeEvent
from kvplan.runtime.prefill.worker import PrefillWorker


class LayerBatches:
    """The layers of a worker in batches of neighbours, and the layers that a step has computed.

    `numbers` are the plan's layer numbers by the names with which the engine reports computed layers; `others` are the
    layers that it does not report.
    """

    def __init__(self, numbers: Mapping[str, int], others: Collection[int] = ()) -> None:
        layers = set(numbers.values())
        self._others = tuple(sorted(set(others) - layers))
        self._batches = batches(layers)
        self._names = [{name for name, layer in numbers.items() if layer in batch} for batch in self._batches]
        self._batch_of = {name: number for number, names in enumerate(self._names) for name in names}
        self._left = [set(names) for names in self._names]

    def computed(self, name: str) -> tuple[int, ...]:
        """Note a computed layer. Return its batch if it was the batch's last layer, or nothing."""
        number = self._batch_of.get(name)
        if number is None or name not in self._left[number]:
            return ()
        self._left[number].discard(name)
        return () if self._left[number] else self._batches[number]

    def rest(self) -> tuple[int, ...] | None:
        """Begin the next step. Return the layers that this step did not report, None for all."""
        left = [layer for batch, names in zip(self._batches, self._left, strict=True) if names for layer in batch]
        whole = len(left) == sum(map(len, self._batches))
        self._left = [set(names) for names in self._names]
        return None if whole else (*left, *self._others)


@dataclass(slots=True)
class OpenPrompt:
    """An open prompt: tokens before `offered` were offered, those before `reached` are offered in this step."""

    name: str
    end: int
    offered: int = 0
    reached: int = 0
    tables: Mapping[str, Table] | None = None


class PromptOffers:
    """The prompts that a worker has open.

    `mark` makes an event after all work that the model was given, or none if it is done at once.
    `unreleased` are the names that the runtime has not reported as released yet.
    """

    def __init__(
        self,
        worker: PrefillWorker,
        tables: BlockTables,
        layers: LayerBatches | None = None,
        mark: Callable[[], ComputeEvent | None] = lambda: None,
    ) -> None:
        self._worker, self._tables, self._layers, self._mark = worker, tables, layers or LayerBatches({}), mark
        self._open: dict[str, OpenPrompt] = {}
        self._step: list[OpenPrompt] = []
        self.unreleased: set[str] = set()

    def begin(self, chunks: Iterable[PromptChunk]) -> None:
        """Begin a step that computes these chunks."""
        self._step = []
        for chunk in chunks:
            try:
                self._reach(chunk)
            except Exception as error:  # It moves at its end, or not at all: no reason to end an engine.
                logs.event(logs.WARNING, "prompt not offered", request=chunk.name, error=error)

    def computed(self, layer: str) -> None:
        """Offer a layer that the step has computed, by its name in the engine."""
        if self._step and (batch := self._layers.computed(layer)):
            self._offer(batch)

    def end(self) -> None:
        """Offer the rest: the step has computed all layers."""
        if not self._step:
            return
        rest = self._layers.rest()
        if rest != ():
            self._offer(rest)
        for prompt in self._step:
            prompt.offered = prompt.reached
        self._step = []

    def finish(self, order: HoldOrder, after: ComputeEvent | None = None) -> bool:
        """Offer the last part of an open prompt, after an event; False if it is not open. Raises KvplanError."""
        prompt = self._open.pop(order.held_name, None)
        if prompt is None:
            return False
        try:
            tokens, tables = (prompt.offered, prompt.end), self._tables.of(order.blocks, order.tokens)
            self._worker.offer(prompt.name, tokens, tables, last=True, after=after, note=order.note)
        except Exception:
            self.withdraw(prompt.name)
            raise
        return True

    def withdraw(self, name: str) -> None:
        """End a prompt's offers by this name; decode learns it when it asks."""
        try:
            if self._open.pop(name, None) is None and name not in self.unreleased:
                self._worker.decline(name)
            else:
                self._worker.withdraw(name)
        except Exception as error:  # See `begin`.
            logs.event(logs.INFO, "decode not told", request=name, error=error)

    def released(self, name: str) -> None:
        """Forget a name that the runtime has released."""
        self.unreleased.discard(name)
        self._open.pop(name, None)

    def _reach(self, chunk: PromptChunk) -> None:
        if chunk.tokens[0] == 0:
            self._worker.open(chunk.name, (0, chunk.end))
            self.unreleased.add(chunk.name)
            self._open[chunk.name] = OpenPrompt(chunk.name, chunk.end)
        prompt = self._open.get(chunk.name)
        if prompt is None:
            return
        prompt.reached = self._tables.whole(min(chunk.tokens[1], prompt.end - 1))
        if prompt.reached > prompt.offered:
            prompt.tables = self._tables.part(chunk.blocks, (prompt.offered, prompt.reached))
            self._step.append(prompt)

    def _offer(self, layers: tuple[int, ...] | None) -> None:
        after = self._mark()
        for prompt in self._step:
            try:
                tokens = prompt.offered, prompt.reached
                self._worker.offer(prompt.name, tokens, prompt.tables, layers=layers, after=after)
            except Exception as error:  # See `begin`.
                logs.event(logs.WARNING, "prompt not offered", request=prompt.name, error=error)
                self._step = [other for other in self._step if other is not prompt]
                self.withdraw(prompt.name)
