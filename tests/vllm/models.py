"""Small models with random weights, made where they are needed: config.json and safetensors from a fixed seed.

Names and shapes of weights are those of the model class of transformers; numbers are normal and so large that greedy
tokens depend on the whole context (an engine's dummy weights are too small, and differ with the number of workers).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BASE: Mapping[str, Any] = {
    "vocab_size": 512, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 32, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "dtype": "bfloat16", "rms_norm_eps": 1e-6,
}  # fmt: skip
SILU = {"hidden_act": "silu"}
DRAFT = {"model_type": "llama", "num_hidden_layers": 1, "rope_theta": 10000.0}
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
    "ernie": {
        **BASE, **SILU, "model_type": "ernie4_5_moe", "architectures": ["Ernie4_5_MoeForCausalLM"], "use_bias": False,
        "moe_layer_start_index": 4, "moe_layer_end_index": 4, "moe_layer_interval": 1, "moe_num_experts": 4,
        "moe_num_shared_experts": 1, "moe_k": 2, "moe_intermediate_size": 64, "rope_theta": 10000.0,
        "num_nextn_predict_layers": 1,
    },
    "glm": {
        **BASE, **SILU, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "rope_theta": 10000.0,
        "first_k_dense_replace": 3, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
        "routed_scaling_factor": 1.0, "use_qk_norm": True, "attention_bias": False, "partial_rotary_factor": 0.5,
        "num_nextn_predict_layers": 2,
    },
    "qwen3_eagle": {**BASE, **SILU, **DRAFT, "architectures": ["LlamaForCausalLM"]},
    "qwen3_eagle3": {
        **BASE, **SILU, **DRAFT, "architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": 512,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 3],
    },
}  # fmt: skip
CONFIGS = {
    **CONFIGS,
    # SGLang has one matrix for embeddings and logits, whatever the checkpoint says.
    "gemma3_tied": {**CONFIGS["gemma3"], "tie_word_embeddings": True},
    "qwen3_next_mtp": {**CONFIGS["qwen3_next"], "num_nextn_predict_layers": 1},
    "deepseek_mtp": {
        **CONFIGS["deepseek"], "first_k_dense_replace": 3, "num_nextn_predict_layers": 1, "topk_method": "noaux_tc",
        "scoring_func": "sigmoid",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Draft:
    """Weights that no class of transformers has: layers shaped as one of the model's, and others by their shapes.

    `layers`: how names of a draft's layer begin, and of the model's that has its shapes, but for what it has not
    (`without`). `alone`: the checkpoint has no others.
    """

    layers: Mapping[str, str]
    more: Mapping[str, tuple[int, ...]]
    without: str = "nothing"
    alone: bool = False


HIDDEN = (256,)
JOINED = (256, 512)  # of a token's embedding and the model's last hidden state
NORMS = ("norm", "pre_fc_norm_hidden", "pre_fc_norm_embedding")
PREDICTS = {
    "eh_proj.weight": JOINED, "enorm.weight": HIDDEN, "hnorm.weight": HIDDEN, "shared_head.norm.weight": HIDDEN,
    "shared_head.head.weight": (512, 256), "embed_tokens.weight": (512, 256),
}  # fmt: skip
DRAFTS: Mapping[str, Draft] = {
    "qwen3_next_mtp": Draft(
        {"mtp.layers.0.": "model.layers.3."},
        {"mtp.fc.weight": JOINED, **{f"mtp.{norm}.weight": HIDDEN for norm in NORMS}},
    ),
    "ernie": Draft(
        {"model.mtp_block.0.": "model.layers.3."},
        {
            "model.mtp_linear_proj.0.weight": JOINED,
            "model.mtp_emb_norm.0.weight": HIDDEN,
            "model.mtp_hidden_norm.0.weight": HIDDEN,
        },
    ),
    "glm": Draft(
        {f"model.layers.{n}.": "model.layers.3." for n in (4, 5)},
        {f"model.layers.{n}.{name}": shape for n in (4, 5) for name, shape in PREDICTS.items()},
    ),
    "deepseek_mtp": Draft(
        {"model.layers.4.": "model.layers.3."},
        {f"model.layers.4.{name}": shape for name, shape in PREDICTS.items()},
    ),
    "qwen3_eagle": Draft({"layers.0.": "model.layers.0."}, {"fc.weight": JOINED}, "input_layernorm", alone=True),
    "qwen3_eagle3": Draft(
        {"midlayer.": "model.layers.0."},
        {
            "midlayer.self_attn.q_proj.weight": (256, 512),
            "midlayer.self_attn.k_proj.weight": (128, 512),
            "midlayer.self_attn.v_proj.weight": (128, 512),
            "midlayer.hidden_norm.weight": HIDDEN,
            "fc.weight": (256, 768),
            "norm.weight": HIDDEN,
            "lm_head.weight": (512, 256),
        },
        alone=True,
    ),
}


def make(name: str, folder: str) -> None:
    """Write the model `name` into `folder`; its config.json is there when the rest is."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoConfig, AutoModelForCausalLM

    path = Path(folder)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**CONFIGS[name]))
    generator = torch.Generator().manual_seed(1234)
    values = sorted(with_draft(name, model.state_dict()).items())
    weights = {key: draw(name, key, value, generator) for key, value in values}
    if CONFIGS[name]["tie_word_embeddings"]:
        del weights["lm_head.weight"]
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    (path / "generation_config.json").write_text(json.dumps({"bos_token_id": 1, "eos_token_id": 2}))
    tokenizer(path)
    (path / "config.new").write_text(json.dumps(CONFIGS[name], indent=1))
    (path / "config.new").rename(path / "config.json")


def with_draft(name: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's weights, and those of its draft; where it is one, these alone."""
    import torch

    if (draft := DRAFTS.get(name)) is None:
        return own
    apart = {key: value for whole, weight in own.items() for key, value in by_expert(whole, weight).items()}
    layers = {
        new + key.removeprefix(old): value
        for new, old in draft.layers.items()
        for key, value in apart.items()
        if key.startswith(old) and draft.without not in key
    }
    more = {key: torch.zeros(shape) for key, shape in draft.more.items()}
    return {**({} if draft.alone else apart), **layers, **more}


def by_expert(name: str, weight: Any) -> Mapping[str, Any]:
    """A weight, or of one that has all experts those of each, as checkpoints name them."""
    if ".experts." not in name:
        return {name: weight}
    begin, _, which = name.rpartition(".")
    halves = {"gate_proj": 0, "up_proj": 1} if which == "gate_up_proj" else {which: 0}
    return {
        f"{begin}.{expert}.{half}.weight": one.chunk(len(halves))[number]
        for expert, one in enumerate(weight)
        for half, number in halves.items()
    }


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
        weight = noise * scale(model, name) / (1.0 if "embed" in name else value.shape[-1] ** 0.5)
    elif "norm" in name.lower():
        weight = norm_base(model, name) + 0.1 * noise
    else:
        weight = value.float() + 0.05 * noise
    return weight.to(torch.bfloat16).contiguous()


def scale(model: str, name: str) -> float:
    if "embed" in name:
        # Logits of the same matrix would else be of the last token alone, whatever stands in a cache.
        return 0.03 if CONFIGS[model]["tie_word_embeddings"] else 1.0
    return 2.0 if "lm_head" in name else 1.6


def norm_base(model: str, name: str) -> float:
    """The scale of a norm that does nothing: some classes add 1 to their weight."""
    adds_one = "gemma" in model or (model == "qwen3_next" and "linear_attn.norm" not in name)
    return 0.0 if adds_one else 1.0
