"""An offload tier for cores: vLLM's OffloadingConnector with a worker that copies without a GPU.

vLLM's own specification of a tier in memory refuses platforms without GPUs, since its worker copies on streams. All
else is vLLM's: which blocks are stored, found, loaded and evicted. Runs in vLLM's environment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.v1.kv_offload.base import CanonicalKVCaches, GPULoadStoreSpec, OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

Copy = tuple[torch.Tensor, torch.Tensor]  # from, to


class CoresOffloadingSpec(CPUOffloadingSpec):  # type: ignore[misc]
    """A tier in memory of an engine whose caches are in memory, too."""

    _worker: OffloadingWorker | None

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if self._worker is None:
            assert self.blocks_per_chunk == 1
            pages = [
                torch.zeros((self.num_chunks, *each.tensor.shape[1:]), dtype=torch.int8) for each in kv_caches.tensors
            ]
            self._worker = CoresOffloadingWorker(kv_caches, pages)
        return self._worker


@dataclass
class CoresOffloadingWorker(OffloadingWorker):  # type: ignore[misc]
    """Copies a step after it is told to, as a stream would at the latest. `pages` are the tier's, by tensor."""

    caches: CanonicalKVCaches
    pages: list[torch.Tensor]
    queued: dict[int, list[Copy]] = field(default_factory=dict)

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: Any) -> bool:
        self.queued[job_id] = [(page, kept) for page, kept in self._pages(src_spec, dst_spec.block_ids)]
        return True

    def submit_load(self, job_id: int, src_spec: Any, dst_spec: GPULoadStoreSpec) -> bool:
        self.queued[job_id] = [(kept, page) for page, kept in self._pages(dst_spec, src_spec.block_ids)]
        return True

    def get_finished(self) -> list[TransferResult]:
        return self._copied({*self.queued})

    def wait(self, job_ids: set[int]) -> None:
        """Copy now: what is copied from is about to be given to another request."""
        for job_id in job_ids & {*self.queued}:
            copy_all(self.queued[job_id])
            self.queued[job_id] = []

    def _copied(self, job_ids: set[int]) -> list[TransferResult]:
        sizes = {job_id: copy_all(self.queued.pop(job_id)) for job_id in sorted(job_ids)}
        return [TransferResult(job_id, True, size, 1e-6) for job_id, size in sizes.items()]

    def _pages(self, blocks: GPULoadStoreSpec, chunks: Any) -> Iterator[Copy]:
        """The pages of the engine's blocks, each with its page in the tier."""
        pairs = iter(zip(blocks.block_ids, chunks, strict=True))
        for count, references in zip(blocks.group_sizes, self.caches.group_data_refs, strict=True):
            for _ in range(count):
                block, chunk = next(pairs)
                for reference in references:
                    number, size = reference.tensor_idx, reference.page_size_bytes
                    yield self.caches.tensors[number].tensor[block, :size], self.pages[number][chunk, :size]


def copy_all(copies: list[Copy]) -> int:
    """Returns how many bytes are copied."""
    for source, target in copies:
        target.copy_(source)
    return sum(target.numel() for _, target in copies)
