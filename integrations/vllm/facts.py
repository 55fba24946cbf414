"""vLLM's description of an engine: the only place that reads its configuration, and the names of its options."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import vllm
from transformers.utils import cached_file
from vllm import envs
from vllm.distributed import parallel_state
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.platforms import current_platform

from kvplan.integrations.shared.facts import EngineFacts, plain_word
from kvplan.integrations.vllm.dump import first_spec, is_state, moved_groups

NAME = "vllm"
AUTO = "auto"
# The engine's default layout of convolution states.
CONV_DEFAULT = "SD"
# Kernels for vectors of 16 elements fill pages like those for other vectors.
ISAS = {"vec": "VEC", "vec16": "VEC", "amx": "AMX"}


def engine_facts(config: Any, caches: Any) -> EngineFacts:
    """Return the facts of the calling worker. `config` is its VllmConfig, `caches` its KVCacheConfig."""
    model, parallel = config.model_config, config.parallel_config
    places = {
        "tp": parallel_state.get_tp_group(),
        "pp": parallel_state.get_pp_group(),
        "dcp": parallel_state.get_dcp_group(),
        "pcp": parallel_state.get_pcp_group(),
    }
    return EngineFacts(
        name=NAME,
        version=vllm.__version__,
        platform=current_platform.device_type,
        config=str(cached_file(model.model, "config.json", revision=model.revision)),
        dtype=plain_word(model.dtype),
        mesh={
            "tp": parallel.tensor_parallel_size,
            "pp": parallel.pipeline_parallel_size,
            "dcp": parallel.decode_context_parallel_size,
            "pcp": parallel.prefill_context_parallel_size,
        },
        rank={axis: group.rank_in_group for axis, group in places.items()},
        options=_options(config, caches),
        state_dtype=_state_dtype(caches),
        overrides=model.hf_overrides if isinstance(model.hf_overrides, Mapping) else {},
    )


def adapter_folder(name: str) -> str | None:
    """Return the hub client's folder of a LoRA of this name, None without one; the hub itself is not asked."""
    try:
        found = cached_file(name, "adapter_config.json", local_files_only=True)
    except OSError:
        return None
    return None if found is None else os.path.dirname(found)


def _options(config: Any, caches: Any) -> dict[str, str]:
    """Return the options in force by the names of layout files; unknown ones are left out.

    Each comes from a value that vLLM does not change after connectors register. So the block is not among them:
    `cache_config.block_size` becomes the smallest of all groups in the process of the engine's core.
    """
    cache, drafts = config.cache_config, config.speculative_config
    dtype = plain_word(config.model_config.dtype) if cache.cache_dtype == AUTO else cache.cache_dtype
    said = {
        "order": caches.kv_cache_layout,
        "kv_dtype": dtype,
        "conv": envs.VLLM_SSM_CONV_STATE_LAYOUT or CONV_DEFAULT,
        "kernel_sizes": _kernel_sizes(config, caches),
        "isa": _isa(config, caches),
        "interleave": _interleave(config.parallel_config),
        "draft_tokens": drafts.num_speculative_tokens if drafts else None,
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def _state_dtype(caches: Any) -> str:
    """Return the element type of recurrent states, the last of a layer's types; empty without states."""
    specs = map(first_spec, moved_groups(caches))
    return next((plain_word(spec.dtypes[-1]) for spec in specs if is_state(spec)), "")


def _interleave(parallel: Any) -> int | None:
    """Return how many tokens a worker has before the next one's begin, if they take turns.

    For its own connector vLLM sets a block; with others it is the user's value, by default 1.
    """
    shared = max(parallel.decode_context_parallel_size, parallel.prefill_context_parallel_size) > 1
    return parallel.cp_kv_cache_interleave_size if shared else None


def _kernel_sizes(config: Any, caches: Any) -> str | None:
    """Return the block sizes that attention kernels accept, if they list them, in a side key's form: `16+32+64`."""
    names = [name for group in moved_groups(caches) if not is_state(first_spec(group)) for name in group.layer_names]
    backends = get_current_attn_backends(config, names) if names else []
    sizes = {tuple(backend.get_supported_kernel_block_sizes()) for backend in backends}
    listed = [size for size in next(iter(sizes), ()) if isinstance(size, int)]
    return "+".join(map(str, listed)) if len(sizes) == 1 and listed else None


def _isa(config: Any, caches: Any) -> str | None:
    """Return the instruction set of attention's CPU kernels, which determines how pages are filled; None elsewhere."""
    if current_platform.device_type != "cpu":
        return None
    from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

    paged = next((spec for spec in map(first_spec, moved_groups(caches)) if not is_state(spec)), None)
    if paged is None:
        return None
    name = _get_attn_isa(config.model_config.dtype, paged.block_size, paged.head_size)
    return ISAS.get(str(name), str(name).upper())
