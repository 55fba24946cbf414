"""Small models with random weights, made where they are needed: config.json and safetensors from a fixed seed.

Names and shapes of weights are those of the model class of transformers; numbers are normal and so large that greedy
tokens depend on the whole context (an engine's dummy weights are too small, and differ with the number of workers).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

BASE: Mapping[str, Any] = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "dtype": "bfloat16", "rms_norm_eps": 1e-6,
}  # fmt: skip
SILU = {"hidden_act": "silu"}
CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "qwen3": {**BASE, **SILU, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "rope_theta": 10000.0},
    "qwen3_small": {
        **BASE, **SILU, "model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "rope_theta": 10000.0,
        "num_hidden_layers": 2,
    },
    "gemma3": {
        **BASE, "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"],
        "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 64, "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 32, "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "nemotron_h": {
        **BASE, "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "layer_norm_epsilon": 1e-5,
        "hybrid_override_pattern": "M*-M*-", "num_hidden_layers": 6, "mamba_num_heads": 8, "mamba_head_dim": 32,
        "n_groups": 2, "ssm_state_size": 32, "conv_kernel": 4, "chunk_size": 64, "mlp_hidden_act": "relu2",
        "use_bias": False, "use_conv_bias": True, "mamba_proj_bias": False, "mlp_bias": False, "attention_bias": False,
    },
    "falcon_h1": {
        **BASE, **SILU, "model_type": "falcon_h1", "architectures": ["FalconH1ForCausalLM"], "rms_norm_eps": 1e-5,
        "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_d_ssm": 256, "mamba_expand": 1, "mamba_n_groups": 2,
        "mamba_d_state": 32, "mamba_d_conv": 4, "mamba_chunk_size": 64, "rope_theta": 10000.0, "num_logits_to_keep": 1,
    },
    "qwen3_next": {
        **BASE, **SILU, "model_type": "qwen3_next", "architectures": ["Qwen3NextForCausalLM"],
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
        "partial_rotary_factor": 0.5, "layer_types": ["linear_attention", "full_attention"] * 2, "num_experts": 4,
        "mlp_only_layers": [], "num_experts_per_tok": 2, "moe_intermediate_size": 64, "mamba_ssm_dtype": "float32",
        "shared_expert_intermediate_size": 64, "decoder_sparse_step": 1,
    },
    "deepseek": {
        **BASE, **SILU, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"],
        "num_attention_heads": 4, "head_dim": 64, "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 4, "n_routed_experts": 8,
        "n_shared_experts": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1,
        "norm_topk_prob": True, "routed_scaling_factor": 1.0, "rope_theta": 10000.0,
    },
}  # fmt: skip


def make(name: str, folder: str) -> None:
    """Write the model `name` into `folder`; its config.json is there when the rest is."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    path = Path(folder)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIGS[name]))
    generator = torch.Generator().manual_seed(1234)
    weights = {key: draw(name, key, value, generator) for key, value in sorted(model.state_dict().items())}
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    (path / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    tokenizer(path)
    (path / "config.new").write_text(json.dumps(CONFIGS[name], indent=1))
    (path / "config.new").rename(path / "config.json")


def tokenizer(path: Path) -> None:
    """Write a tokenizer of one word for each token, and with a chat template that says what was said, in turn."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {word(number): number for number in range(BASE["vocab_size"])}
    plain = Tokenizer(models.WordLevel(words, unk_token=word(0)))
    plain.pre_tokenizer, plain.decoder = pre_tokenizers.WhitespaceSplit(), decoders.WordPiece(prefix="")
    special = {"pad_token": word(0), "unk_token": word(0), "bos_token": word(1), "eos_token": word(2)}
    made = PreTrainedTokenizerFast(tokenizer_object=plain, **special)
    made.chat_template = "{% for message in messages %}{{ message['content'] }} {% endfor %}"
    made.save_pretrained(path)


def word(token: int) -> str:
    """A token as text: letters for its digits, as tokenizers of some models take numbers apart."""
    return "".join("abcdefghij"[int(digit)] for digit in f"{token:03}")


def draw(model: str, name: str, value: Any, generator: Any) -> Any:
    """The weight `name` in bf16; what has neither fan-in nor a norm's scale stays about as the class makes it."""
    import torch

    noise = torch.randn(value.shape, generator=generator)
    if "conv" in name.lower() and value.ndim >= 2:
        weight = 0.5 * noise
    elif value.ndim >= 2:
        weight = noise * scale(name) / (1.0 if "embed" in name else value.shape[-1] ** 0.5)
    elif "norm" in name.lower():
        weight = norm_base(model, name) + 0.1 * noise
    else:
        weight = value.float() + 0.05 * noise
    return weight.to(torch.bfloat16).contiguous()


def scale(name: str) -> float:
    if "embed" in name:
        return 1.0
    return 2.0 if "lm_head" in name else 1.6


def norm_base(model: str, name: str) -> float:
    """The scale of a norm that does nothing: some classes add 1 to their weight."""
    adds_one = "gemma" in model or (model == "qwen3_next" and "linear_attn.norm" not in name)
    return 0.0 if adds_one else 1.0
