"""Zeroes where a load writes nothing, in blocks that the engine believes will be written whole.

vLLM zeroes blocks that go from states to tokens, since the old bytes may be no number in another element type; not
those that a connector loads into. A load into such blocks writes the tokens that were asked for and no byte beside
them (`whole_last_page` is not set), so that the rest of the last block has to be zeroed here, and of a window the front
of its first block: tokens before it are not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kvplan.integrations.vllm.metadata import NULL_BLOCK, LoadOrder


class BlockClearing:
    """What is to be zeroed before a load, on one worker.

    `spans` are the tokens of a block by the group's position among those that are moved, of groups of tokens alone;
    `tensors` the layers of each as they are registered, `blocks` the blocks of the pool. `windows` are the groups of
    which only the last tokens are loaded.
    """

    def __init__(
        self,
        spans: Mapping[int, int],
        tensors: Mapping[int, Sequence[Any]],
        blocks: int,
        windows: Collection[int] = (),
    ) -> None:
        self._spans, self._tensors, self._blocks, self._windows = spans, tensors, blocks, windows
        self._stream: Any = None

    def clear(self, order: LoadOrder) -> None:
        """Zero the blocks that a load does not fill, or may not. They are zero when this returns."""
        with self._beside_the_model():
            for group in self._spans:
                for block in order.blocks[group][self._first(group, order) :]:
                    self._zero(group, block)
        if self._stream is not None:
            self._stream.synchronize()

    def _first(self, group: int, order: LoadOrder) -> int:
        """The position of the first block to be zeroed: the load's last one; of a window, of few blocks, its first one.

        A block in which local tokens end stays as it is: it was computed here.
        """
        span, (first, end) = self._spans[group], order.tokens
        return -(-first // span) if group in self._windows else end // span

    def _zero(self, group: int, block: int) -> None:
        if block == NULL_BLOCK:
            return
        for tensor in self._tensors[group]:
            ratio = tensor.shape[0] // self._blocks
            tensor[block * ratio : (block + 1) * ratio].zero_()

    def _beside_the_model(self) -> AbstractContextManager[Any]:
        """A stream of one's own on an accelerator: the model's has a step to compute, which nobody is to wait for."""
        tensor = next((tensors[0] for tensors in self._tensors.values() if tensors), None)
        if tensor is None or tensor.device.type == "cpu":
            return nullcontext()
        import torch

        self._stream = self._stream or torch.cuda.Stream(tensor.device)
        stream: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return stream
