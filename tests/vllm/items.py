"""One vLLM engine, asked by lines of JSON for prompts with audio clips: alone, or one that encodes or prefills.

Runs in vLLM's environment, as `-m tests.vllm.items make FOLDER` and `-m tests.vllm.items ROLE FOLDER [TP]`.
The model has random weights. Its encoder is for audio: those for images want torchvision, which the environment lacks.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from tests.vllm.models import tokenizer, word

# Samples of a second, and the place of a clip in a prompt: begin, the clip itself, end.
RATE, CLIP = 16000, (500, 501, 502)
TEXT = {
    "model_type": "qwen2", "vocab_size": 512, "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "max_position_embeddings": 4096, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
AUDIO = {
    "model_type": "qwen2_audio_encoder", "d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4,
    "encoder_ffn_dim": 64, "num_mel_bins": 80, "max_source_positions": 1500,
}  # fmt: skip
OPTIONS = {
    "dtype": "float32", "enforce_eager": True, "max_model_len": 512, "max_num_seqs": 4, "disable_log_stats": True,
    "block_size": 32, "num_gpu_blocks_override": 64, "limit_mm_per_prompt": {"audio": 3},
}  # fmt: skip
ROLES = {"encode": "ec_producer", "prefill": "ec_consumer", "both": "ec_both"}


def make(folder: Path) -> None:
    """Write the model: weights so large that tokens depend on all of a prompt, clips among it."""
    import torch
    from safetensors.torch import save_file
    from transformers import (
        AutoTokenizer,
        Qwen2AudioConfig,
        Qwen2AudioForConditionalGeneration,
        Qwen2AudioProcessor,
        WhisperFeatureExtractor,
    )

    tokenizer(folder)
    words = AutoTokenizer.from_pretrained(folder)
    begin, clip, end = map(word, CLIP)
    words.add_tokens([begin, clip, end], special_tokens=True)  # told apart where no space is between them
    mel = WhisperFeatureExtractor(feature_size=AUDIO["num_mel_bins"], sampling_rate=RATE)
    Qwen2AudioProcessor(
        mel, words, words.chat_template, audio_token=clip, audio_bos_token=begin, audio_eos_token=end
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = Qwen2AudioConfig(audio_config=AUDIO, text_config=TEXT, audio_token_index=CLIP[1], dtype="float32")
    model = Qwen2AudioForConditionalGeneration(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.normal_(0, 1.6 / weight.shape[-1] ** 0.5)
    weights = {as_released(name): weight for name, weight in model.state_dict().items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    config.architectures = [type(model).__name__]
    config.save_pretrained(folder)


def as_released(name: str) -> str:
    """A weight's name in the released checkpoints, which vLLM reads: the text model is whole, with its logits."""
    if name.startswith("lm_head."):
        return f"language_model.{name}"
    return name.removeprefix("model.").replace("language_model.", "language_model.model.", 1)


def serve(role: str, folder: Path, workers: int) -> None:
    """Answer each line until the last one."""
    from vllm import LLM
    from vllm.config import ECTransferConfig

    more: dict[str, Any] = {}
    if role in ROLES:
        extra = {"lease_s": 30, "timeout_s": 60}
        more["ec_transfer_config"] = ECTransferConfig(
            ec_connector="KvplanECConnector",
            ec_role=ROLES[role],
            engine_id=role,
            ec_buffer_size=float(1 << 25),
            ec_connector_extra_config=extra,
        )
    engine = LLM(model=str(folder), tensor_parallel_size=workers, **OPTIONS, **more)
    encoded = counted(engine)
    tell({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        tell({**answered(engine, asked), "encoded": list(encoded)})
        encoded.clear()
    engine.llm_engine.engine_core.shutdown()


def counted(engine: Any) -> list[str]:
    """The items that the scheduler has its encoder make from now on."""
    scheduler, made = engine.llm_engine.engine_core.engine_core.scheduler, list[str]()
    schedule = scheduler.schedule

    def scheduled(*args: Any, **kwargs: Any) -> Any:
        output = schedule(*args, **kwargs)
        for name, indices in output.scheduled_encoder_inputs.items():
            features = scheduler.requests[name].mm_features
            made.extend(features[index].identifier for index in indices)
        return output

    scheduler.schedule = scheduled
    return made


def answered(engine: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """The tokens, their logprobs and what the next engine is to be told of a prompt with clips of so many seconds."""
    from vllm import SamplingParams

    chance = np.random.default_rng(asked["seed"])
    clips = [(chance.normal(size=int(seconds * RATE)).astype(np.float32), RATE) for seconds in asked["seconds"]]
    tokens = [11, 12, 13, *(token for _ in clips for token in (*CLIP, 14)), 15, 16]
    params = asked.get("params")
    sampling = SamplingParams(
        temperature=0.0,
        max_tokens=asked["tokens"],
        ignore_eos=True,
        logprobs=1,
        extra_args={"ec_transfer_params": params} if params else None,
    )
    prompt = {"prompt_token_ids": tokens, "multi_modal_data": {"audio": clips}}
    (output,) = engine.generate([prompt], sampling, use_tqdm=False)
    (said,) = output.outputs
    logprobs = [max(one.logprob for one in each.values()) for each in said.logprobs or ()]
    return {"tokens": list(said.token_ids), "logprobs": logprobs, "params": output.ec_transfer_params}


def tell(word: dict[str, Any]) -> None:
    # vLLM's own output goes elsewhere.
    os.write(ANSWERS, f"{json.dumps(word)}\n".encode())


if __name__ == "__main__":
    ANSWERS = os.dup(1)
    os.dup2(2, 1)
    what, where, *rest = sys.argv[1:]
    if what == "make":
        make(Path(where))
    else:
        serve(what, Path(where), int(rest[0]) if rest else 1)
