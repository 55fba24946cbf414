"""Workers of vLLM's NixlConnector over untouched address space, with a NIXL that does nothing.

Runs in vLLM's environment. The classes are vLLM's own, through their constructors, `register_kv_caches` and handshake.
Replaced are NIXL, the worker's rank in its group, the attention backend – a GPU's, because kernels are not
loaded – and the memory.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
import torch
from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlAgentMetadata, NixlConnectorMetadata
from vllm.distributed.kv_transfer.kv_connector.v1.nixl.pull_worker import NixlPullConnectorWorker
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models import ModelRegistry
from vllm.platforms import current_platform
from vllm.v1.attention.backends.flash_attn import FlashAttentionBackend
from vllm.v1.attention.backends.utils import record_kv_cache_layout
from vllm.v1.core.kv_cache_utils import get_kv_cache_configs
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheSpec, MambaSpec
from vllm.v1.worker.utils import allocate_kv_cache

from kvplan.bench.stage import Reserved, reserve

PRODUCER, HEADS_FIRST, ENOUGH = "prefill", "LBHNC", 1 << 44


class IdleNixl:
    """NIXL's agent as far as a worker calls it; `posted` counts descriptors of transfers."""

    def __init__(self, *_: object) -> None:
        self.posted = 0

    def make_prepped_xfer(self, _: str, __: int, local: Sequence[int], *___: object, notif_msg: bytes) -> int:
        self.posted += len(local)
        return 1

    def transfer(self, _: int) -> str:
        return "PROC"

    def get_agent_metadata(self) -> bytes:
        return b"agent"

    def add_remote_agent(self, metadata: bytes) -> str:
        return metadata.decode()

    def prep_xfer_dlist(self, *_: object) -> int:
        return 1

    def __getattr__(self, name: str) -> Any:
        """Return a no-op for calls that register memory and give it back."""
        return lambda *_, **__: None


def engine_config(folder: Path, model: Mapping[str, Any], tp: int, tokens: int, block: int) -> Any:
    """Return vLLM's configuration of an engine for requests of `tokens` tokens; `block` grows to hold a state."""
    (folder / "config.json").write_text(json.dumps(model))
    transfer = {"kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_buffer_device": "cpu"}
    config = EngineArgs(
        model=str(folder), tensor_parallel_size=tp, block_size=block, max_model_len=tokens, dtype="bfloat16",
        distributed_executor_backend="mp", skip_tokenizer_init=True, enforce_eager=True, enable_prefix_caching=False,
        kv_transfer_config=transfer,
    ).create_engine_config()  # fmt: skip
    if config.model_config.is_hybrid:
        current_platform._align_hybrid_block_size(config, FlashAttentionBackend)
    record_kv_cache_layout(config.cache_config, HEADS_FIRST)
    return config


def cache_specs(config: Any, attention: Sequence[int], states: Sequence[int]) -> dict[str, KVCacheSpec]:
    """Return vLLM's specs by layer, like its own layers would make them."""
    model, cache = config.model_config, config.cache_config
    heads = model.get_num_kv_heads(config.parallel_config)
    pages = FullAttentionSpec(
        block_size=cache.block_size, num_kv_heads=heads, head_size=model.get_head_size(), dtype=model.dtype
    )
    specs: dict[str, KVCacheSpec] = {f"model.layers.{layer}.attn": pages for layer in attention}
    if states:
        known, _ = ModelRegistry.resolve_model_cls(model.architecture, model_config=model)
        state = MambaSpec(
            shapes=known.get_mamba_state_shape_from_config(config),
            dtypes=known.get_mamba_state_dtype_from_config(config),
            block_size=cache.mamba_block_size,
            page_size_padded=cache.mamba_page_size_padded,
        )
        specs |= {f"model.layers.{layer}.mixer": state for layer in states}
    return specs


def worker(config: Any, specs: Mapping[str, KVCacheSpec], rank: int, blocks: int, name: str) -> Any:
    """Make a worker of the engine `name`, with a registered pool of `blocks` blocks. Raises what vLLM raises."""
    config.cache_config.num_gpu_blocks_override = blocks
    (caches,) = get_kv_cache_configs(config, [dict(specs)], [ENOUGH])
    size = config.parallel_config.tensor_parallel_size
    place: dict[str, Any] = {
        "NixlWrapper": IdleNixl,
        "nixl_agent_config": None,
        "get_tensor_model_parallel_rank": lambda: rank,
        "get_tensor_model_parallel_world_size": lambda: size,
        "get_current_attn_backends": lambda _: [FlashAttentionBackend],
    }
    cores = os.sched_getaffinity(0)
    with patch.multiple(base_worker, **place):
        made = NixlPullConnectorWorker(config, name, caches)
    os.sched_setaffinity(0, cores)  # The constructor binds to a core for transfers.
    made.register_kv_caches(untouched(config, caches))
    return made


def untouched(config: Any, caches: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that vLLM would allocate, in address space without memory."""
    kept: list[Reserved] = []

    def zeros(size: int, dtype: torch.dtype, device: object) -> torch.Tensor:
        kept.append(reserve(size))
        return torch.frombuffer(kept[-1].owner, dtype=dtype)

    kernel = [group.kv_cache_spec.block_size for group in caches.kv_cache_groups]
    with patch.object(torch, "zeros", zeros):
        return allocate_kv_cache(
            caches, torch.device("cpu"), config.cache_config.get_resolved_kv_cache_layout(), kernel
        )


def introduce(decode: Any, prefill: Sequence[Any], size: int) -> None:
    """Do decode's half of the handshake with the workers of a prefill engine of `size`. Raises what vLLM raises."""
    decoder = msgspec.msgpack.Decoder(NixlAgentMetadata)
    for each in prefill:
        card = decoder.decode(each.xfer_handshake_metadata.agent_metadata_bytes)
        decode._remote_agents[PRODUCER][0, each.tp_rank] = decode.add_remote_agent(card, each.tp_rank, size)


def read_order(number: int, local: Sequence[list[int]], remote: Sequence[list[int]], size: int) -> Any:
    """Return the order of vLLM's scheduler to its workers in a step that reads one request."""
    order = NixlConnectorMetadata()
    params = {
        "remote_block_ids": remote, "remote_engine_id": PRODUCER, "remote_request_id": "r", "remote_host": "host",
        "remote_port": 1, "tp_size": size,
    }  # fmt: skip
    order.add_new_req_to_recv(f"request-{number}", local, params, awaiting_kvs=True)
    return order


def block_counts(made: Any, tokens: int) -> list[int]:
    """Return how many blocks a request of `tokens` tokens has in each of a worker's groups."""
    specs = [group.kv_cache_spec for group in made.kv_cache_config.transfer_groups]
    return [math.ceil(tokens / spec.block_size) for spec in specs]
