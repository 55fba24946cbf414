"""Zero parts of blocks that a load does not write, but that the engine believes to be written whole.

vLLM zeroes blocks that go from states to tokens, because the old bytes may be no number in another element type, but
not the blocks that a connector loads into. A load into such blocks writes only the requested tokens
(`whole_last_page` is not set). So this module zeroes the rest of the last block, and in a window also the front of
its first block, because earlier tokens are not loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kvplan.integrations.vllm.metadata import NULL_BLOCK, LoadOrder


class BlockClearing:
    """The memory to zero before a load, on one worker.

    `spans` are the tokens of a block by the group's position among the moved ones, for groups of tokens only; `tensors`
    are the registered layers of each, `blocks` the blocks of the pool. `windows` are the groups that load only their
    last tokens.
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
        """Return the position of the first block to zero: the load's last one, or in a window its first one.

        A block in which local tokens end stays as it is, because it was computed here.
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
        """Return a separate stream on an accelerator, so that zeroing does not wait for the model's step."""
        tensor = next((tensors[0] for tensors in self._tensors.values() if tensors), None)
        if tensor is None or tensor.device.type == "cpu":
            return nullcontext()
        import torch

        self._stream = self._stream or torch.cuda.Stream(tensor.device)
        stream: AbstractContextManager[Any] = torch.cuda.stream(self._stream)
        return stream
