"""Text where a configuration should have a number, a list or a mapping: never another layout without a word."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import pytest

from kvplan.dsl.configs.families import reading_of
from kvplan.dsl.configs.recognise import RecognisedModel, recognise
from kvplan.dsl.configs.write_model import doubts
from kvplan.dsl.lang.foreign_json import value
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

LIBRARY = load()
HEADS = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "dtype": "float16"}
WINDOWS = {**HEADS, "num_hidden_layers": 4, "sliding_window": 1024, "swa_head_dim": 128, "swa_num_key_value_heads": 1}
CONFIGS: Mapping[str, Mapping[str, object]] = {
    "windows": {**WINDOWS, "layer_types": ["full_attention", "sliding_attention"] * 2, "num_kv_shared_layers": 1},
    "window-lists": {**HEADS, "num_hidden_layers": 4, "sliding_window": [8, 16, 8, 16]},
    "window-every": {**HEADS, "num_hidden_layers": 4, "sliding_window": 8, "sliding_window_pattern": 2},
    "chunks": {**HEADS, "num_hidden_layers": 4, "attention_chunk_size": 64, "no_rope_layers": [1, 0, 1, 1]},
    "own": {**HEADS, "num_hidden_layers": 2, "per_layer_config": {"01": {"num_key_value_heads": 4, "head_dim": 32}}},
    "mamba": {
        **HEADS, "num_hidden_layers": 4, "attn_layer_indices": [1, 3], "mamba_n_heads": 8, "mamba_d_head": 64,
        "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4,
    },
    "letters": {
        **HEADS, "num_hidden_layers": 4, "hybrid_override_pattern": "M*M-", "mamba_num_heads": 8, "mamba_head_dim": 64,
        "ssm_state_size": 16, "n_groups": 1, "conv_kernel": 4,
    },
    "latents": {**HEADS, "num_hidden_layers": 4, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
    "delta": {
        **HEADS, "num_hidden_layers": 4,
        "linear_attn_config": {"kda_layers": [1, 2, 4], "num_heads": 8, "head_dim": 64, "short_conv_kernel_size": 4},
    },
    "loops": {**HEADS, "num_hidden_layers": 4, "loop_window_size": 64, "loop_num": 2},
}  # fmt: skip


def read(config: object) -> RecognisedModel:
    found = value(config)
    assert isinstance(found, Mapping)
    reading, family = reading_of(LIBRARY, found)
    return recognise(found, reading, LIBRARY.kinds, SourceSpan("config.json", 1, 1, 1), family)


def stored(model: RecognisedModel) -> object:
    caches = [(c.kind, c.layers, {name: a.value for name, a in c.params.items()}) for c in model.caches]
    return model.layers.value, model.dtype.value, caches


def spoilt(entry: object) -> Iterator[object]:
    """Wrong values that a person may write for a number, a list or a mapping."""
    if isinstance(entry, int):
        yield from (str(entry), "large")
    if isinstance(entry, list):
        yield from (
            json.dumps(entry),
            ",".join(map(str, entry)),
            *([list(map(str, entry))] if 1 in entry or 8 in entry else []),
        )
    if isinstance(entry, dict):
        yield json.dumps(entry)


def mutants(config: Mapping[str, object]) -> Iterator[tuple[str, dict[str, object]]]:
    """Each key, outermost for those in mappings, and the configuration with a spoilt value."""
    for key, entry in config.items():
        yield from ((key, {**config, key: bad}) for bad in spoilt(entry))
        if isinstance(entry, dict):
            yield from ((key, {**config, key: inner}) for _, inner in mutants(entry))


@pytest.mark.parametrize("name", CONFIGS)
def test_text_where_a_number_is_expected_is_told_with_its_key(name: str) -> None:
    config = CONFIGS[name]
    whole = read(config)
    silent = [mutant for key, mutant in mutants(config) if not told(key, mutant, whole)]
    assert not silent


def told(key: str, mutant: Mapping[str, object], whole: RecognisedModel) -> bool:
    """Whether an error, or a doubt that `whole` does not have, names the key; or nobody asks for it."""
    try:
        model = read(mutant)
    except DslError as error:
        return key in str(error)
    return any(key in doubt for doubt in {*doubts(model)} - {*doubts(whole)}) or stored(model) == stored(whole)


@pytest.mark.parametrize("window", ["1024", "large", 1024.5, {"full": 4}])
def test_a_window_that_is_no_number_is_an_error(window: object) -> None:
    with pytest.raises(
        DslError, match=r"F007(.|\n)*sliding_window: expected a whole number|F00[37](.|\n)*sliding_window"
    ):
        read({**CONFIGS["windows"], "sliding_window": window})
