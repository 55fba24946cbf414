"""Configurations to models: layers, numbers and doubts, and what ends in a named error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kvplan.dsl.configs.families import reading_of
from kvplan.dsl.configs.naming import free_name, last, name_of
from kvplan.dsl.configs.recognise import RecognisedModel, recognise
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import Diagnostic, DslError
from kvplan.dsl.text.source import SourceSpan

LIBRARY = load()
PLACE = SourceSpan("config.json", 1, 1, 1)
PLAIN = {
    "num_hidden_layers": 4,
    "hidden_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "dtype": "float16",
}


def read(config: Mapping[str, object]) -> RecognisedModel:
    found = parse_foreign(json.dumps(config).encode(), "config.json")
    reading, family = reading_of(LIBRARY, found)
    return recognise(found, reading, LIBRARY.kinds, PLACE, family)


def caches(config: Mapping[str, object]) -> dict[str, tuple[str, tuple[int, ...], dict[str, object]]]:
    """Name -> kind, layers, the parameters that have a value."""
    return {
        stored.name: (stored.kind, stored.layers, {n: a.value for n, a in stored.params.items() if a.value is not None})
        for stored in read(config).caches
    }


def fault(config: Mapping[str, object]) -> Diagnostic:
    with pytest.raises(DslError) as error:
        read(config)
    return error.value.diagnostics[0]


def test_a_plain_model() -> None:
    assert caches(PLAIN) == {"attention": ("gqa", (0, 1, 2, 3), {"heads": 2, "dim": 64, "dim_v": 64})}
    found = read(PLAIN)
    assert (found.layers.value, found.dtype.value, found.query_heads.value) == (4, "f16", 8)
    assert found.caches[0].params["dim"].sources == ("hidden_size", "num_attention_heads")


def test_an_architecture_that_is_not_known_is_said() -> None:
    assert any(
        "no layout that comes with kvplan" in remark
        for remark in read({**PLAIN, "architectures": ["NewForCausalLM"]}).remarks
    )
    assert not read({**PLAIN, "architectures": ["LlamaForCausalLM"]}).remarks


def test_one_of_two_architectures_is_enough() -> None:
    assert not read({**PLAIN, "architectures": ["NewForCausalLM", "LlamaForCausalLM"]}).remarks


@pytest.mark.parametrize("nest", ["text_config", "llm_config", "language_config"])
def test_numbers_inside(nest: str) -> None:
    outer = {
        "vision_config": {"num_hidden_layers": 99, "num_attention_heads": 3},
        "num_attention_heads": None,
        nest: PLAIN,
    }
    assert caches(outer) == caches(PLAIN)
    assert caches({"thinker_config": {nest: PLAIN, "num_hidden_layers": 7}}) == caches(PLAIN)


def test_null_is_as_good_as_missing() -> None:
    nothing = {"sliding_window": None, "layer_types": None, "head_dim": None, "num_kv_shared_layers": None}
    assert caches({**PLAIN, **nothing}) == caches(PLAIN)


def test_layers_by_words() -> None:
    words = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]
    found = caches({**PLAIN, "layer_types": words, "sliding_window": 32})
    assert {name: (at, numbers.get("window")) for name, (_, at, numbers) in found.items()} == {
        "sliding": ((0, 2), 32), "attention": ((1, 3), None),
    }  # fmt: skip


def test_layers_without_a_cache_are_said() -> None:
    found = read({**PLAIN, "layer_types": ["full_attention", "new", "new", "mlp"]})
    assert found.caches[0].layers == (0,)
    assert "layers 1-2: nothing is known to be stored by 'new' of layer_types" in found.doubts
    assert not any("layer 3" in remark for remark in found.remarks)


def test_a_list_too_short_is_said() -> None:
    found = read({**PLAIN, "layer_types": ["full_attention"] * 3})
    assert found.caches[0].layers == (0, 1, 2)
    rules = "the rules for conv, sliding, local and attention could not be judged"
    assert f"layer 3: layer_is: layer_types has only 3 entries: {rules}" in found.doubts


def test_a_list_much_too_short_is_said_once() -> None:
    said = read({**PLAIN, "num_hidden_layers": 96, "layer_types": ["full_attention", "sliding_attention"]}).remarks
    assert (
        len([remark for remark in said if "2-95" in remark]) == len([r for r in said if "layer" in r.split()[0]]) <= 2
    )


def test_layers_with_numbers_of_their_own_are_caches_of_their_own() -> None:
    config = {**PLAIN, "num_hidden_layers": 3, "kinds": [2, 4, 2]}
    found = parse_foreign(json.dumps(config).encode(), "config.json")
    reading, _ = reading_of(LIBRARY, found)
    from kvplan.dsl.lang.expr import parse_expr
    from kvplan.dsl.lang.functions import EVERY
    from kvplan.dsl.rules.rule import over
    from kvplan.dsl.schema.config import ConfigRules

    own = ConfigRules(words=(("kv_heads", parse_expr("at(kinds, layer)", functions=EVERY)),))
    made = recognise(found, over(reading, own), LIBRARY.kinds, PLACE).caches
    assert [(c.name, c.layers, c.params["heads"].value) for c in made] == [
        ("attention", (0, 2), 2), ("attention-2", (1,), 4),
    ]  # fmt: skip


def test_what_is_assumed_is_said() -> None:
    found = read({key: value for key, value in PLAIN.items() if key != "dtype"})
    assert found.dtype.value == "bf16"
    assert any("nothing says an element type: bfloat16 is taken" in remark for remark in found.remarks)


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_two_words_for_the_element_type(key: str) -> None:
    config = {name: value for name, value in PLAIN.items() if name != "dtype"}
    assert read({**config, key: "bfloat16"}).dtype.value == "bf16"


@pytest.mark.parametrize("count", [None, 0, -1, True, "8", 1.5, [8], {"n": 8}, 1001, 10**30])
def test_no_number_of_layers(count: object) -> None:
    assert fault({**PLAIN, "num_hidden_layers": count}).code == "F002"


@pytest.mark.parametrize(
    ("config", "about"),
    [
        ({"num_hidden_layers": 4}, "kv_lora_rank"),
        ({**PLAIN, "layer_types": ["new"] * 4}, "layers 0-3: nothing is known to be stored by 'new' of layer_types"),
    ],
)
def test_nothing_known(config: Mapping[str, object], about: str) -> None:
    found = fault(config)
    assert found.code == "F003"
    assert about in found.notes[0]


@pytest.mark.parametrize(
    ("config", "code", "about"),
    [
        ({"head_dim": 0.5}, "F007", "0.5"),
        ({"num_key_value_heads": "2"}, "F007", "'2'"),
        ({"num_key_value_heads": 2**63}, "F003", "too large"),
        ({"num_key_value_heads": [2, 2, 2, 2]}, "F003", "a list"),
        ({"hidden_size": None}, "F004", "hidden_size"),
        ({"num_attention_heads": 0, "num_key_value_heads": 0}, "F007", "division by zero"),
        ({"num_attention_heads": 1}, "F007", "2 KV heads are more than the 1 query heads"),
        ({"kv_lora_rank": 512}, "F004", "qk_rope_head_dim"),
    ],
)
def test_a_number_is_missing(config: Mapping[str, object], code: str, about: str) -> None:
    found = fault({**PLAIN, **config})
    assert found.code == code
    assert about in " ".join(found.notes)


@pytest.mark.parametrize("word", ["auto", 3, "float7", [], {}])
def test_no_element_type(word: object) -> None:
    assert fault({**PLAIN, "dtype": word}).code == "F005"


def test_numbers_that_make_no_layout() -> None:
    cache = "{kind: gqa, layers: all, heads: -1, dim: 8}"
    text = f"kvplan: 1\nmodel: x\ntitle: x\ndtype: bf16\nlayers: 2\ncaches: {{a: {cache}}}\n"
    with pytest.raises(DslError, match="F007"):
        parsed(LIBRARY, text, "x", PLACE)


@pytest.mark.parametrize("name", ["x.yml", "a b.yaml", "llama-3.1-8b.yaml", "llama-3.yaml", "none/x.yaml", "here.yaml"])
def test_a_file_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    (tmp_path / "here.yaml").write_text("mine")
    with pytest.raises(DslError, match="F006"):
        name_of(LIBRARY, tmp_path / name)


def test_names() -> None:
    assert name_of(LIBRARY, Path("mine.yaml")) == "mine"
    assert [last(path) for path in ("a/b/C/", "c", "", None, 3)] == ["C", "c", "", "", ""]
    assert [free_name(LIBRARY, name) for name in ("My Model_2", "llama-3", "", "/")] == [
        "my-model-2", "llama-3-new", "new", "new",
    ]  # fmt: skip


def test_a_model_that_says_how_it_is_read_first_is_a_model(tmp_path: Path) -> None:
    text = (
        "kvplan: 1\nconfig: {words: {a: b}}\nmatch: {architectures: X}\nmodel: mine\ntitle: x\ndtype: bf16\nlayers: 1\n"
    )
    (tmp_path / "mine.yaml").write_text(text + "caches: {a: {kind: gqa, layers: all, heads: 1, dim: 8}}\n")
    assert load([tmp_path / "mine.yaml"]).model("mine").layers == 1


OWN_KEYS = {
    **PLAIN,
    "head_dim": 64,
    "swa_head_dim": 128,
    "sliding_window": 8,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}


@pytest.mark.parametrize(
    ("more", "sizes", "about"),
    [
        ({}, {"sliding": (128, 128), "attention": (64, 64)}, ""),
        ({"swa_v_head_dim": 96}, {"sliding": (128, 96), "attention": (64, 64)}, ""),
        ({"v_head_dim": 128}, {"sliding": (128, 128), "attention": (64, 128)}, ""),
        ({"v_head_dim": 32}, {"sliding": (128, 32), "attention": (64, 32)}, "nothing says swa_v_head_dim"),
        (
            {"swa_head_dim": None, "swa_v_head_dim": 96},
            {"sliding": (64, 96), "attention": (64, 64)},
            "nothing says swa_head_dim",
        ),
        ({"global_head_dim": 256}, {"sliding": (128, 128), "attention": (256, 256)}, ""),
        (
            {"swa_v_head_dim": 96, "global_head_dim": 256, "v_head_dim": 32},
            {"sliding": (128, 96), "attention": (256, 32)},
            "values of 32 as all layers",
        ),
        (
            {"per_layer_config": {"1": {"head_dim": 256}}, "swa_v_head_dim": 32, "v_head_dim": 64},
            {"sliding": (128, 32), "attention": (256, 64), "attention-2": (64, 64)},
            "layer 1: keys have 256 elements",
        ),
    ],
)
def test_values_are_as_wide_as_the_keys_of_their_layers_unless_a_key_says_otherwise(
    more: dict[str, object], sizes: dict[str, tuple[int, int]], about: str
) -> None:
    found = read({**OWN_KEYS, **more})
    widths = {cache.name: tuple(cache.params[name].value for name in ("dim", "dim_v")) for cache in found.caches}
    assert widths == sizes
    told = [doubt for doubt in found.doubts if about in doubt and "elements" in doubt]
    assert len(told) == (1 if about else 0), found.doubts
