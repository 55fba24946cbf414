"""Keys that a configuration leaves out are those of its class; what is given, null too, is never replaced."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kvplan.dsl.configs.class_defaults import filled
from kvplan.dsl.configs.new_model import NewModel, made
from kvplan.dsl.library import load
from kvplan.dsl.schema.config import ConfigClass, ConfigClasses

LIBRARY = load()
INSIDE = ("outer_config", "text_config")
CLASSES = ConfigClasses(
    "release 1",
    {
        "inner": ConfigClass({"heads": 8, "n_layer": 2}, same={"num_hidden_layers": "n_layer"}, other=("layer_types",)),
        "wrapper": ConfigClass(inside={"text_config": {"model_type": "inner", "heads": 4}}),
        "plain": ConfigClass({"heads": 2}),
    },
)


@pytest.mark.parametrize(
    ("chain", "values", "left"),
    [
        (({"model_type": "plain"},), {"heads": 2}, {"heads"}),
        (({"model_type": "plain", "heads": None},), {"heads": None}, set()),
        (({"model_type": "inner", "num_hidden_layers": 9},), {"heads": 8, "num_hidden_layers": 9}, {"heads"}),
        (({"model_type": "other"},), {}, set()),
        # A missing inner configuration gets the usual class, with the numbers of the outer one.
        (({"model_type": "wrapper", "n_layer": 7},), {"heads": 4, "n_layer": 7}, {"heads"}),
    ],
)
def test_what_is_given_counts_under_each_of_its_names(
    chain: tuple[dict[str, object], ...], values: dict[str, object], left: set[str]
) -> None:
    found = filled(chain, INSIDE, CLASSES)
    merged = {key: value for mapping in found.chain for key, value in mapping.items() if key != "model_type"}
    assert (merged, found.defaulted) == (values, frozenset(left))


def test_an_inner_configuration_without_a_type_has_the_usual_one() -> None:
    inner: dict[str, object] = {"n_layer": 3}
    found = filled(({"model_type": "wrapper", "text_config": inner}, inner), INSIDE, CLASSES)
    assert found.chain[1] == {"heads": 4, "model_type": "inner", "n_layer": 3}
    assert (found.known, found.open) == (True, ("layer_types",))


def test_an_inner_configuration_of_another_type_has_the_defaults_of_that() -> None:
    inner: dict[str, object] = {"model_type": "plain"}
    found = filled(({"model_type": "wrapper", "text_config": inner}, inner), INSIDE, CLASSES)
    assert found.chain[1] == {"heads": 2, "model_type": "plain"}


def test_null_outside_says_nothing_about_what_an_inner_class_has() -> None:
    """An engine gives the inner class its own mapping alone."""
    inner: dict[str, object] = {"n_layer": 3}
    found = filled(({"model_type": "wrapper", "heads": None, "text_config": inner}, inner), INSIDE, CLASSES)
    assert found.chain[1] == {"heads": 4, "model_type": "inner", "n_layer": 3}


def test_a_class_that_does_not_know_the_mapping_inside_adds_nothing() -> None:
    inner: dict[str, object] = {"n_layer": 3}
    found = filled(({"model_type": "plain", "text_config": inner}, inner), INSIDE, CLASSES)
    assert (found.chain, found.defaulted) == (({"model_type": "plain", "text_config": inner}, inner), frozenset())


def new(tmp_path: Path, config: dict[str, object]) -> NewModel:
    (tmp_path / "config.json").write_text(json.dumps({"dtype": "bfloat16", **config}))
    return made(LIBRARY, tmp_path / "config.json")


def unsure(found: NewModel) -> list[str]:
    """The doubts but one: these configurations name no architecture."""
    return [doubt for doubt in found.doubts if "`architectures` is missing" not in doubt]


def test_a_wrapper_that_says_hardly_anything_is_read(tmp_path: Path) -> None:
    llava = {"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}
    found = new(tmp_path, {**llava, "text_config": {"model_type": "llama"}})
    assert found.doubts == ()
    assert "layers: 32  # num_hidden_layers by default\n" in found.text
    assert "num_attention_heads and num_hidden_layers: left out, and read as the class of transformers 5." in found.text


def test_layers_go_round_as_the_class_has_them(tmp_path: Path) -> None:
    found = new(
        tmp_path, {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "num_hidden_layers": 8}}
    )
    assert unsure(found) == []
    assert "layers: [5]  # layer_types by default\n" in found.text
    assert "window: 4096  # sliding_window by default" in found.text


def test_what_a_class_works_out_is_in_doubt(tmp_path: Path) -> None:
    found = new(tmp_path, {"model_type": "gemma4", "text_config": {"model_type": "gemma4_text"}})
    assert any("what each layer is its class works out" in doubt for doubt in found.doubts)
    assert unsure(new(tmp_path, {"model_type": "gemma4_text", "layer_types": ["full_attention"] * 30})) == []


def test_a_default_disputes_nothing(tmp_path: Path) -> None:
    dbrx = {"model_type": "dbrx", "d_model": 512, "n_heads": 4, "n_layers": 2, "attn_config": {"kv_n_heads": 2}}
    found = new(tmp_path, dbrx)
    assert (unsure(found), "heads: 2  # attn_config" in found.text) == ([], True)
