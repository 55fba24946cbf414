"""SGLang's description of an engine: the only place that reads its arguments and KVArgs."""

from __future__ import annotations

import json
import os
from typing import Any

import sglang
import torch
from sglang.srt.configs.mamba_utils import mamba2_state_dtype
from sglang.srt.configs.model_config import ModelConfig
from sglang.srt.environ import envs
from sglang.srt.runtime_context import get_disagg, get_parallel
from transformers.utils import cached_file

from kvplan.integrations.sglang.aux import AuxRows
from kvplan.integrations.sglang.layout import Buffers, EngineBuffers
from kvplan.integrations.sglang.limits import STATES, check, components
from kvplan.integrations.shared.facts import EngineFacts, plain_word

NAME, AUTO = "sglang", "auto"


def engine_facts(arguments: Any, kv: Any) -> EngineFacts:
    """Return the facts of the calling worker. `arguments` are its ServerArgs, `kv` its KVArgs.

    Raises ConnectorError (I012) for settings that the connector does not support.
    """
    parallel = get_parallel()
    check(arguments, kv, parallel)
    model = ModelConfig.from_server_args(arguments)
    states = mamba2_state_dtype(model.hf_text_config) if STATES in components(kv) else None
    recurrent = plain_word(states.temporal) if states else ""
    convolution = plain_word(states.conv) if states else ""
    dtype = plain_word(model.dtype)
    said = {
        "block": kv.page_size,
        "order": kv.kv_layout or _order(),
        "kv_dtype": dtype if kv.kv_cache_dtype_str == AUTO else kv.kv_cache_dtype_str,
        "recurrent": recurrent,
        "convolution": convolution,
    }
    return EngineFacts(
        name=NAME,
        version=sglang.__version__,
        platform=arguments.device,
        config=str(cached_file(arguments.model_path, "config.json", revision=arguments.revision)),
        dtype=dtype,
        mesh={"tp": parallel.attn_tp_size, "pp": parallel.pp_size},
        rank={"tp": parallel.attn_tp_rank, "pp": parallel.pp_rank},
        options={name: str(value) for name, value in said.items() if value != ""},
        state_dtype=recurrent,
        conv_dtype=convolution,
        overrides=json.loads(arguments.json_model_override_args or "{}"),
    )


def engine_buffers(arguments: Any, kv: Any) -> EngineBuffers:
    """Return the buffers that SGLang registers, by KVArgs."""
    pages = _buffers(kv.kv_data_ptrs, kv.kv_data_lens, kv.kv_item_lens, kv.kv_layer_ids)
    lists = zip(kv.state_data_ptrs, kv.state_data_lens, kv.state_item_lens, kv.state_layer_ids, strict=True)
    states = dict(zip(components(kv), (_buffers(*each) for each in lists), strict=True))
    if arguments.device == "cpu":
        return EngineBuffers(pages, states)
    return EngineBuffers(pages, states, "VRAM", kv.gpu_id)


def aux_rows(kv: Any) -> AuxRows:
    """Return the auxiliary rows of requests, in host memory. The room is the last, or the last before a checksum."""
    room = len(kv.aux_item_lens) - (2 if get_disagg().disaggregation_enable_kv_checksum else 1)
    return AuxRows(tuple(kv.aux_data_ptrs), tuple(kv.aux_item_lens), room)


def engine_run(kind: str, port: int) -> str:
    """Return the name of this run of an engine, the same on all of its workers, which have one parent process."""
    return f"sglang-{kind}-{port}.{os.getppid()}"


def _order() -> str:
    """Return the order of elements in a page of keys. KVArgs lacks it, and pages of every order have one size."""
    if envs.SGLANG_USE_HND_KVCACHE.get():
        return "hnd"
    aiter = torch.version.hip is not None and envs.SGLANG_USE_AITER.get()
    return str(envs.SGLANG_AITER_KV_CACHE_LAYOUT.get()).lower() if aiter else "nhd"


def _buffers(addresses: Any, sizes: Any, items: Any, layers: Any) -> Buffers:
    return Buffers(tuple(addresses), tuple(sizes), tuple(items), tuple(layers or ()))
