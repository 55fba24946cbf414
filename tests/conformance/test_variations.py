"""Configurations as a new architecture might have them: keys under other names, mappings called otherwise.

Each gives the layout that it gave before, or a doubt, or is refused with a next step.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.conformance.corpus import Configuration, configurations
from tests.shares import later

from kvplan.dsl.configs.new_model import NewModel, described
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

LIBRARY, PLACE = load(), SourceSpan("config.json", 1, 1, 1)
SMALL = [found for key, found in configurations().items() if key.startswith("tiny--")]
# Keys by which an engine knows what it serves, and of which type.
NAMES = ("architectures", "model_type", "dtype", "torch_dtype")


def new(config: Mapping[str, Any]) -> NewModel:
    return described(LIBRARY, parse_foreign(json.dumps(config).encode(), PLACE.path), PLACE)


def stored(found: NewModel) -> list[str]:
    model = parsed(LIBRARY, found.text, found.name, PLACE)
    caches = ((c.kind, c.layers, sorted((n, e.text) for n, e in c.params.items())) for c in model.caches.values())
    return sorted(map(repr, caches))


def renamed(config: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The configuration with one key under another name, for each key."""
    for key in (key for key, value in config.items() if key not in NAMES and not isinstance(value, Mapping)):
        varied = copy.deepcopy(dict(config))
        varied[f"zz_{key}"] = varied.pop(key)
        yield varied


def attempted(config: Mapping[str, Any]) -> NewModel | str:
    """Describe a configuration like `kvplan new`, or return the advice of its refusal."""
    try:
        return new(config)
    except DslError as error:
        return error.diagnostics[0].help


@pytest.mark.parametrize("found", [*SMALL[:2], *later(SMALL[2:])], ids=lambda found: found.key)
def test_a_key_under_another_name_never_changes_a_layout_without_a_doubt(found: Configuration) -> None:
    before = new(found.config)
    for varied in renamed(found.config):
        after = attempted(varied)
        assert after, "a refusal says what to do next"
        silent = isinstance(after, NewModel) and not after.doubts and stored(after) != stored(before)
        assert not silent, sorted(varied.keys() - found.config.keys())


@pytest.mark.parametrize(
    ("key", "value", "doubted"),
    [
        ("num_hidden_layer", 7, True),
        ("my_num_hidden_layers", 7, True),
        ("decoder_num_hidden_layers_extra", 7, True),
        ("vision_num_hidden_layers", 7, False),
        ("sampling_notes", 7, False),
    ],
)
def test_a_key_that_resembles_a_missing_one_is_a_doubt(key: str, value: int, doubted: bool) -> None:
    """Here the class says how many layers there are."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16"}
    assert bool(new({**config, key: value}).doubts) is doubted


# Keys of other architectures, each of which makes another layout where it is read.
FOREIGN = {
    "global_head_dim": 512,
    "v_head_dim": 32,
    "multi_query": True,
    "kv_channels": 96,
    "layer_group_size": 2,
    "attention_hidden_size": 2048,
    "hybrid_override_pattern": "M*M*",
}
PLAIN = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "dtype": "bfloat16",
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
}


@pytest.mark.parametrize("key", FOREIGN)
def test_a_key_that_an_architecture_is_not_known_to_read_changes_no_layout_without_a_doubt(key: str) -> None:
    assert not new(PLAIN).doubts
    varied = new({**PLAIN, key: FOREIGN[key]})
    assert stored(varied) == stored(new(PLAIN)) or varied.doubts


def test_a_key_counts_if_its_class_has_it_or_a_right_configuration_of_its_architecture() -> None:
    assert not new({**PLAIN, "head_dim": 64}).doubts, "the class has it"
    grouped = {**PLAIN, "architectures": ["MixtralForCausalLM"], "model_type": "mixtral"}
    assert not new({**grouped, "head_dim": 64}).doubts, "vLLM reads it, and a configuration with it was compared"


def test_a_foreign_key_that_changes_nothing_is_no_doubt() -> None:
    assert not new({**PLAIN, "kv_channels": 128}).doubts


def with_keys(key: str, **changed: object) -> NewModel:
    """A configuration of the corpus with other keys, those of None left out, in the mapping that has the layers."""
    config = copy.deepcopy(dict(configurations()[key].config))
    inner = next((own for own in (config.get("language_config"), config.get("text_config")) if own), config)
    inner.update(changed)
    for name in (name for name, value in changed.items() if value is None):
        del inner[name]
    return new(config)


@pytest.mark.parametrize(
    ("key", "changed"),
    [
        ("known--DeepSeek-OCR", {"v_head_dim": 48}),  # of latents, which it has not
        ("known--DeepSeek-OCR", {"head_dim": 96}),
        ("known--DeepSeek-OCR", {"kv_lora_rank": 256}),
        ("fix--ChatGLMModel", {"kv_channels": 256}),
        ("fix--MiMoV2ForCausalLM", {"hybrid_layer_pattern": [0] * 48}),
        ("hand--DotsOCRForCausalLM", {"use_sliding_window": True}),
        ("sparse--Qwen3_5MoeForCausalLM", {"is_causal": False}),
        ("tf--LlamaForCausalLM", {"dtype": "float32"}),
        ("alias--HfMoondream", {"num_hidden_layers": 12}),  # a copy of what its own mapping calls n_layers
        ("fix--DeepseekV4ForCausalLM", {"layer_types": ["heavily_compressed_attention"] * 43}),
        ("fix--MiMoV2ForCausalLM", {"v_head_dim": 0}),
        ("tf--GPTBigCodeForCausalLM", {"num_key_value_heads": 2}),
        ("tiny--JambaForCausalLM", {"head_dim": 64}),  # compared where it is what it would be anyway, too
    ],
)
def test_what_engines_read_otherwise_than_another_key_is_a_doubt(key: str, changed: dict[str, object]) -> None:
    assert not new(configurations()[key].config).doubts
    assert with_keys(key, **changed).doubts


def test_a_model_without_latents_has_heads_of_one_size() -> None:
    """vLLM's class of it ignores the size of values."""
    found = with_keys("known--DeepSeek-OCR", v_head_dim=48)
    assert "dim: 128  #" in found.text
    assert "dim_v: 128  #" in found.text


def test_which_layers_have_an_indexer_is_known_if_a_configuration_leaves_it_to_its_class() -> None:
    """The defaults are those of vLLM's and SGLang's code: vLLM's dump of it lists layers 0, 1, 5, 9 and so on."""
    whole = new(configurations()["tf--HYV4ForCausalLM"].config)
    assert stored(with_keys("tf--HYV4ForCausalLM", indexer_types=None)) == stored(whole)


def test_the_element_type_is_that_of_the_whole_checkpoint() -> None:
    inner = {"torch_dtype": "float32", **{key: value for key, value in PLAIN.items() if key != "architectures"}}
    outer = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "dtype": "bfloat16"}
    found = new({**outer, "text_config": inner})
    assert "dtype: bf16" in found.text
    assert not found.doubts


def test_a_key_outside_the_model_that_writes_text_is_not_one_inside() -> None:
    inner = {key: value for key, value in PLAIN.items() if key not in ("architectures", "num_key_value_heads")}
    outer = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "dtype": "bfloat16"}
    assert not new({**outer, "text_config": {**inner, "num_key_value_heads": 4}}).doubts
    assert new({**outer, "num_key_value_heads": 4, "text_config": inner}).doubts


def test_numbers_outside_are_no_copy_of_those_inside() -> None:
    """An engine may read either: vLLM reads those outside of Ernie4_5_VLMoe, and those inside of others."""
    inner = {key: value for key, value in PLAIN.items() if key != "architectures"}
    outer = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava", "dtype": "bfloat16"}
    assert not new({**outer, "num_hidden_layers": 4, "num_key_value_heads": 4, "text_config": inner}).doubts
    assert new({**outer, "num_hidden_layers": 5, "text_config": inner}).doubts
    assert new({**outer, "num_key_value_heads": 2, "text_config": inner}).doubts
    inner.pop("num_hidden_layers")
    assert new({**outer, "num_hidden_layers": 4, "text_config": inner}).doubts, "the class inside has layers by default"


def test_whisper_has_an_encoder_whatever_is_said_of_it() -> None:
    whole = new(configurations()["tf--WhisperForConditionalGeneration"].config)
    assert stored(with_keys("tf--WhisperForConditionalGeneration", is_encoder_decoder=False)) == stored(whole)


@pytest.mark.parametrize("name", ["backbone", "lm_cfg"])
def test_a_model_inside_under_an_unknown_name_is_refused_with_that_name(name: str) -> None:
    inner = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4}
    with pytest.raises(DslError, match="F002") as error:
        new({"architectures": ["SeeingForCausalLM"], "model_type": "seeing", name: inner})
    assert error.value.diagnostics[0].help.startswith(f"if {name} is the model that writes text, call it text_config")
