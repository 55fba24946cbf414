"""kvplan new is never silently wrong: what transformers writes is right or in doubt by name; unread keys are said.

The configurations are those that transformers writes, cut down to the keys about layers and caches: of public models,
and of architectures that no layout file describes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.paths import FIXTURES
from tests.shares import later

from kvplan.cli.main import main
from kvplan.dsl.check import check
from kvplan.dsl.configs.new_model import FOREIGN, UNHEARD, UNPROVEN, NewModel, made
from kvplan.dsl.configs.recognise import UNKNOWN
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.library import load
from kvplan.dsl.schema.model import Model
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

FIXTURES = FIXTURES
WRITTEN, PUBLIC = FIXTURES / "transformers", sorted((FIXTURES / "configs").glob("*.json"))
LIBRARY = load()
PLAIN: Mapping[str, object] = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "dtype": "float16",
}  # fmt: skip


def new(tmp_path: Path, config: Mapping[str, object]) -> NewModel:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return made(LIBRARY, tmp_path / "config.json", None)


def stored(new: NewModel) -> dict[str, tuple[str, int, dict[str, str]]]:
    """Name of a cache -> kind, how many layers, the numbers that the file says."""
    model: Model = parsed(LIBRARY, new.text, new.name, SourceSpan("x", 1, 1, 1))
    said = {name: {n: expr.text for n, expr in cache.params.items()} for name, cache in model.caches.items()}
    return {name: (cache.kind, len(cache.layers), said[name]) for name, cache in model.caches.items()}


@pytest.mark.parametrize(
    "name",
    ["deepseek-v4-flash", "gemma-4-26b", "gemma-4-e2b", "mimo-v2-flash", "nemotron-3-nano-30b", "nemotron-h-8b",
     "zamba2-7b"],
)  # fmt: skip
def test_what_transformers_writes_of_a_public_model_stores_what_the_shipped_one_does(name: str) -> None:
    answer = made(LIBRARY, WRITTEN / f"{name}.json", None)
    assert name in answer.same
    assert [note for note in answer.notes if "draft layers" not in note] == []


def test_defaults_of_an_architecture_store_what_its_public_model_does() -> None:
    assert made(LIBRARY, WRITTEN / "default-mimo-v2-flash.json", None).same == ("mimo-v2-flash",)


def unread(*keys: str) -> list[str]:
    return [f"`{key}` was not read: see in the model's code what it does" for key in keys]


def uncompared(architecture: str) -> str:
    return UNPROVEN.format(architecture)


CROSSING = (
    "layers 3, 8, 13, 18, 23, 28, 33, 38: nothing is known to be stored by 'cross_attention' of cross_attention_layers"
)
RECURRING = (
    "layers 0-1, 3-4, 6-7, 9-10, 12-13, 15-16, 18-19, 21-22, 24-25: nothing is known to be stored by 'recurrent' of "
    "block_types"
)
ATTENTION: dict[str, tuple[dict[str, tuple[str, int, dict[str, str]]], list[str]]] = {
    "gemma4-text": (
        {
            "sliding": ("gqa", 25, {"heads": "4", "dim": "256", "window": "512"}),
            "attention": ("gqa", 5, {"heads": "4", "dim": "512"}),
        },
        [],
    ),
    "nemotron-h": (
        {
            "mamba": (
                "mamba2",
                1,
                {"heads": "128", "head_dim": "64", "state": "128", "groups": "8", "conv": "4", "ssm_dtype": "f32"},
            ),
            "attention": ("gqa", 1, {"heads": "8", "dim": "128"}),
        },
        [],
    ),
    "mllama": (
        {"attention": ("gqa", 32, {"heads": "8", "dim": "128"})},
        [CROSSING, UNKNOWN],
    ),
    "falcon": ({"attention": ("gqa", 32, {"heads": "1", "dim": "64"})}, [UNKNOWN]),
    "gpt-bigcode": ({"attention": ("gqa", 12, {"heads": "1", "dim": "64"})}, [UNKNOWN]),
    "dbrx": ({"attention": ("gqa", 24, {"heads": "1", "dim": "128"})}, [UNKNOWN]),
    "longcat-flash": (
        {
            "attention": ("mla", 28, {"latent": "512", "rope": "64", "nope": "128"}),
            "attention-2": ("mla", 28, {"latent": "512", "rope": "64", "nope": "128"}),
        },
        [UNKNOWN],
    ),
    "recurrent-gemma": (
        {"attention": ("gqa", 8, {"heads": "10", "dim": "256"})},
        [RECURRING, *unread("attention_window_size", "conv1d_width"), uncompared("RecurrentGemmaForCausalLM")],
    ),
    "zamba": (
        {
            "mamba": ("mamba1", 76, {"channels": "7424", "state": "16", "conv": "4"}),
            "attention": ("gqa", 13, {"heads": "16", "dim": "464"}),
        },
        [UNKNOWN],
    ),
}


@pytest.mark.parametrize("name", ATTENTION)
def test_what_no_layout_describes_is_right_or_in_doubt_by_name(name: str) -> None:
    answer = made(LIBRARY, WRITTEN / f"{name}.json", None)
    caches, notes = ATTENTION[name]
    assert list(answer.notes) == notes
    found = stored(answer)
    assert {cache: (kind, count, {n: v for n, v in said.items() if n in caches[cache][2]})
            for cache, (kind, count, said) in found.items()} == caches  # fmt: skip


@pytest.mark.parametrize("name", ["UnheardForCausalLM", "GlmAsrForUnheardThings"])
@pytest.mark.parametrize("config", [PLAIN, {"text_config": {**PLAIN, "architectures": None, "head_dim": 128}}])
def test_an_architecture_that_was_never_compared_is_in_doubt(
    tmp_path: Path, name: str, config: Mapping[str, object]
) -> None:
    """Whatever its keys mean, nobody has to find out by wrong bytes."""
    answer = new(tmp_path, {**config, "architectures": [name]})
    assert answer.doubts == (uncompared(name),)
    assert (
        f"doubts:  # take out what you have compared with an engine\n  - '{uncompared(name)}'"
        in answer.text.replace("''", "'")
    )


def test_a_key_that_no_known_model_has_is_a_doubt_if_the_class_is_unknown(tmp_path: Path) -> None:
    """Only the model's own code says what it means; a known class does not read it."""
    odd = {**PLAIN, "first_dense_only": 2, "zork": {"a": 1}, "tie_word_embeddings": True, "vocab_size": 9, "off": False}
    assert new(tmp_path, odd).doubts == ()
    nested = {"text_config": {**odd, "head_dim": 128, "architectures": None}}
    for config in (odd, nested):
        answer = new(tmp_path, {**config, "architectures": ["UnheardForCausalLM"], "model_type": "unheard"})
        assert answer.doubts[-1] == UNHEARD.format("`first_dense_only` and `zork`")
    known = {**odd, "architectures": ["UnheardForCausalLM"], "model_type": "llama"}
    assert new(tmp_path, known).doubts == (uncompared("UnheardForCausalLM"),)


@pytest.mark.parametrize(
    ("expr", "message"),
    [
        ("head_dim", "'layer_dim' uses 'head_dim', which uses 'layer_dim'"),
        ("value_dim", "'layer_dim' uses 'value_dim', which comes after 'head_dim', which uses 'layer_dim'"),
        ("said_dim", ""),
    ],
)
def test_a_word_of_a_model_that_comes_too_late_is_refused(tmp_path: Path, expr: str, message: str) -> None:
    """It would replace nothing, and the configuration would be read as if it were not there."""
    own = tmp_path / "own.yaml"
    own.write_text(
        "kvplan: 1\nmodel: own\ntitle: Own\nmatch: {architectures: OwnForCausalLM}\ndtype: bf16\nlayers: 4\n"
        f"caches: {{a: {{kind: gqa, layers: all, heads: 2, dim: 8}}}}\nconfig: {{words: {{layer_dim: {expr}}}}}\n"
    )
    assert [(error.code, error.message) for error in check([own])] == ([("E007", message)] if message else [])


def test_layers_that_compress() -> None:
    found = stored(made(LIBRARY, WRITTEN / "deepseek-v4.json", None))
    assert {name: (count, said.get("ratio")) for name, (_, count, said) in found.items()} == {
        "window": (43, None), "many": (23, "128"), "many-compressor": (23, "128"), "few": (20, "4"),
        "few-compressor": (20, "4"), "indexer": (20, None), "indexer-compressor": (20, "4"),
    }  # fmt: skip


NOW = PUBLIC[::5]
ODD = ("my_kv_heads", "sliding_block", "attn_schedule", "layer_types_2", "hybrid_map", "state_size_2", "latent_dim")


@pytest.mark.parametrize("path", [*NOW, *later(path for path in PUBLIC if path not in NOW)], ids=lambda path: path.stem)
def test_a_key_that_no_rule_reads_is_said_wherever_it_stands(tmp_path: Path, path: Path) -> None:
    config = json.loads(path.read_text())
    inner = config.get("text_config", config)
    known = new(tmp_path, config).notes
    inner |= dict.fromkeys(ODD, 3)
    said = new(tmp_path, config).notes
    added = (text.partition(", or correct it: ")[0] for text in set(said) - set(known))
    assert sorted(added) == sorted(unread(*ODD))
    assert set(known) <= set(said)


@pytest.mark.parametrize("value", [None, False, "", [], {}, 1.5, 0.0])
def test_what_is_off_or_no_number_is_no_doubt(tmp_path: Path, value: object) -> None:
    assert new(tmp_path, {**PLAIN, "my_kv_heads": value}).notes == ()


@pytest.mark.parametrize("value", [0, 1, True, "x", [0], {"a": 1}])
def test_what_says_something_is_a_doubt(tmp_path: Path, value: object) -> None:
    assert list(new(tmp_path, {**PLAIN, "my_kv_heads": value}).notes) == unread("my_kv_heads")


def test_two_keys_for_one_number_are_no_doubt_if_they_agree(tmp_path: Path) -> None:
    assert new(tmp_path, {**PLAIN, "head_dim": 128, "kv_channels": 128, "num_kv_heads": 8}).notes == ()


def test_two_keys_for_one_number_that_say_different_things_are_named(tmp_path: Path) -> None:
    answer = new(tmp_path, {**PLAIN, "head_dim": 128, "kv_channels": 64, "num_query_groups": 4})
    assert answer.doubts[:2] == (
        "attention.heads: num_key_value_heads says 8, num_query_groups says 4: the first is used",
        "attention.dim: head_dim says 128, kv_channels says 64: the first is used",
    )


def test_a_key_of_a_kind_that_is_not_there_is_a_doubt(tmp_path: Path) -> None:
    notes = new(tmp_path, {**PLAIN, "index_head_dim": 128, "conv_L_cache": 3}).notes
    convolved = "a convolution over 3 tokens, and nothing says in which layers: none is read so"
    assert list(notes) == [f"layers 0-3: {convolved}", *unread("index_head_dim")]


def test_entries_of_what_is_read_are_looked_at(tmp_path: Path) -> None:
    turns = {"1": {"head_dim": 64, "kv_lora_rank": 8}, "03": {"num_key_value_heads": 2, "kv_lora_rank": 8}, "window": 9}
    answer = new(tmp_path, {**PLAIN, "per_layer_config": turns})
    assert list(answer.notes) == unread("per_layer_config.kv_lora_rank", "per_layer_config.window")
    numbers = {(count, said["heads"], said["dim"]) for _, count, said in stored(answer).values()}
    assert numbers == {(2, "8", "128"), (1, "8", "64"), (1, "2", "128")}


@pytest.mark.parametrize(
    ("config", "note"),
    [
        ({"num_key_value_heads": 5}, "layers 0-3: 32 query heads are no multiple of 5 KV heads"),
        (
            {"hidden_size": 4097},
            "layers 0-3: 128 elements of a head are a guess: 4097 does not divide by 32 heads",
        ),
        ({"layer_types": ["full_attention"] * 5}, "layer_types has more entries than there are layers, 4"),
        (
            {"layer_types": ["hybrid", "full_attention"] * 2},
            "layers 0, 2: 'hybrid' layers store a state besides keys and values, and nothing says of which size",
        ),
        ({"hidden_size": 4097, "head_dim": 128}, None),
        ({"num_key_value_heads": 32}, None),
        ({"num_key_value_heads": 1}, None),
    ],
)
def test_numbers_that_do_not_divide(tmp_path: Path, config: Mapping[str, object], note: str | None) -> None:
    assert list(new(tmp_path, {**PLAIN, **config}).notes) == ([note] if note else [])


DEFAULTS = "inside another configuration what a model has by default is left out"
NESTED: Mapping[str, object] = {
    "model_type": "unheard", "num_hidden_layers": 4, "hidden_size": 2560, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "dtype": "float16",
}  # fmt: skip


def less(config: Mapping[str, object], *keys: str, **more: object) -> dict[str, object]:
    return {key: value for key, value in config.items() if key not in keys} | more


@pytest.mark.parametrize(
    ("inner", "doubts"),
    [
        (NESTED, ()),
        (less(NESTED, "num_key_value_heads"), ("attention.heads: 32 is assumed: nothing gives num_key_value_heads",)),
        (less(NESTED, "head_dim"), (f"the elements of a head are a guess: {DEFAULTS}",)),
        (less(NESTED, "head_dim", model_type="qwen2_vl_text"), ()),
        # The class of its type is known, and has 32 KV heads of 128 elements.
        (less(NESTED, "num_key_value_heads", "head_dim", model_type="qwen3"), ()),
        (less(NESTED, "num_key_value_heads", "head_dim", kv_lora_rank=512, qk_rope_head_dim=64), ()),
    ],
)
def test_what_a_configuration_inside_another_leaves_out(
    tmp_path: Path, inner: Mapping[str, object], doubts: tuple[str, ...]
) -> None:
    """Beside what it says of keys that are there, and that nobody is known to read of such a model."""
    found = new(tmp_path, {"architectures": ["LlavaForConditionalGeneration"], "text_config": inner}).doubts
    assert tuple(doubt for doubt in found if FOREIGN.partition("{}")[2].partition("{}")[0] not in doubt) == doubts


@pytest.mark.parametrize("other", [{}, {"num_kv_groups": 8}])
def test_kv_heads_that_an_unknown_class_leaves_out_are_a_doubt(tmp_path: Path, other: Mapping[str, object]) -> None:
    """It happened: `heads: 24  # num_attention_heads` with no doubt of its own, and doctor printed `works`."""
    said = "attention.heads: 32 is assumed: nothing gives num_key_value_heads"
    unknown = {**less(PLAIN, "num_key_value_heads"), "architectures": ["OddForCausalLM"], "model_type": "odd", **other}
    found = new(tmp_path, unknown)
    assert said in found.doubts
    assert f"  - '{said}'" in found.text
    assert not [doubt for doubt in new(tmp_path, {**unknown, "num_key_value_heads": 32}).doubts if "heads" in doubt]
    known = {**less(PLAIN, "num_key_value_heads"), "model_type": "llama"}
    assert stored(new(tmp_path, known))["attention"][2]["heads"] == "32"
    assert new(tmp_path, known).doubts == ()


def test_a_fraction_is_said_once_with_the_number_to_write(tmp_path: Path) -> None:
    """It happened: the same sentence four times, for each cache and parameter."""
    with pytest.raises(DslError) as error:
        new(tmp_path, {**PLAIN, "head_dim": 128.0})
    (said,) = error.value.diagnostics[0].notes
    where = "dim of cache attention and dim_v of cache attention"
    assert said == f"{where}: head_dim: expected a number or a word, not the fraction 128.0 (write 128)"


ALL_SLIDE = "a window of 4096 tokens, and nothing says in which layers: it is read as that of all"
NO_WINDOW = "'sliding_attention' layers, and no window: sliding_window is missing or 0, so all tokens are kept"
WINDOW_OFF = (
    "'sliding_attention' layers, and use_sliding_window is false: they have the window of 64 tokens here; "
    "remove it if your engine keeps all"
)
BOTH = {"mamba_d_state": 16, "mamba_n_heads": 64, "mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_conv": 4}


@pytest.mark.parametrize(
    ("config", "doubt"),
    [
        ({"sliding_window": 4096}, f"layers 0-3: {ALL_SLIDE}"),
        ({"sliding_window": 4096, "model_type": "mistral"}, None),
        ({"sliding_window": 4096, "sliding_window_pattern": 4}, None),
        ({"sliding_window": 4096, "use_sliding_window": False}, None),
        (
            {"layer_types": ["full_attention", "sliding_attention"] * 2},
            f"layers 1, 3: {NO_WINDOW}",
        ),
        (
            {"layer_types": ["sliding_attention"] * 4, "sliding_window": 64, "use_sliding_window": False},
            f"layers 0-3: {WINDOW_OFF}",
        ),
        (
            {"attention_chunk_size": 64, "no_rope_layers": []},
            "layers 0-3: chunks of 64 tokens, and nothing says in which layers: none is read so",
        ),
        ({"attention_chunk_size": 64, "no_rope_layers": [1, 1, 1, 0]}, None),
        (BOTH, "layers 0-3: states and attention, and nothing says in which layers: each cache has all of them"),
        ({**BOTH, "architectures": ["FalconH1ForCausalLM"]}, None),
        ({**BOTH, "attn_layer_indices": [3]}, None),
    ],
)  # fmt: skip
def test_layers_that_nothing_tells_apart(tmp_path: Path, config: Mapping[str, object], doubt: str | None) -> None:
    assert new(tmp_path, {**PLAIN, **config}).doubts == ((doubt,) if doubt else ())


def test_more_kv_heads_than_query_heads(tmp_path: Path) -> None:
    with pytest.raises(DslError, match="F007") as error:
        new(tmp_path, {**PLAIN, "num_key_value_heads": 64})
    assert error.value.diagnostics[0].notes == (
        "layers 0-3: 64 KV heads are more than the 32 query heads that they are for",
    )


def run(*words: object, given: str = "") -> tuple[int, str, str]:
    done = CliRunner().invoke(main, [str(word) for word in words], input=given)
    return done.exit_code, done.stdout, done.stderr


def test_stdin() -> None:
    path = PUBLIC[0]
    code, out, said = run("new", path)
    assert run("new", "-", given=path.read_text()) == (code, out, said.replace(str(path), "-"))
    code, _, said = run("new", "-", given="{")
    assert (code, "<stdin>:1:2" in said, "error[F001]" in said) == (2, True, True)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {},
            (
                "it does not say how many layers there are",
                "looked for",
                "add num_hidden_layers, or the configuration of the model that writes text",
            ),
        ),
        ({"num_hidden_layers": True}, ("num_hidden_layers is 'True', which is no number of layers", "in a copy")),
        (
            {"num_hidden_layers": "20"},
            ("num_hidden_layers is '20'", "write it as a number, in a copy of the configuration: 20"),
        ),
        ({"num_hidden_layers": 2}, ("looked for", "write the model file by hand, docs/add-a-model.md")),
    ],
)
def test_errors_say_what_to_do(config: Mapping[str, Any], said: tuple[str, ...]) -> None:
    code, _, text = run("new", "-", given=json.dumps(config))
    assert code == 2
    assert [word for word in said if word not in text] == []


def test_what_layers_are_called_is_said_rather_than_all_keys_that_rules_read() -> None:
    _, _, text = run("new", "-", given=json.dumps({**PLAIN, "layer_types": ["rwkv"] * 4}))
    assert "layers 0-3: nothing is known to be stored by 'rwkv' of layer_types" in text
    assert "looked for" not in text
    _, _, text = run("new", "-", given=json.dumps({**PLAIN, "num_key_value_heads": [4, 4]}))
    assert "num_key_value_heads: expected a number or a word, not a list" in text
    assert "looked for" not in text


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    _, _, said = run("new", PUBLIC[0], "-o", tmp_path / "none" / "mine.yaml")
    assert "there is no folder" in said
    assert "make the folder" in said
    assert "another name" not in said


GEMMA = {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "num_hidden_layers": 20, "hidden_size": 2304,
    "num_attention_heads": 12, "num_key_value_heads": 6, "head_dim": 192, "sliding_window": 768,
    "sliding_window_pattern": 5, "dtype": "bfloat16",
}  # fmt: skip
AGREE = "layouts that `kvplan new` wrote for other Gemma3ForCausalLM configurations agree with engines; yours was not"


def test_that_others_agree_is_not_said_of_a_layout_that_may_be_wrong() -> None:
    assert (
        f"{AGREE} compared:\n  sglang 0.5.23: 1 of 1 configuration right, 6 dumps\n"
        in run("new", "-", given=json.dumps(GEMMA))[2]
    )
    odd = {**GEMMA, "layer_types": ["full_attention"] * 19 + ["odd"]}
    _, text, said = run("new", "-", "--accept-doubts", given=json.dumps(odd))
    assert ("layer 19: nothing is known" in said, "agree" in said, "layers: layer < 19  # layer_types" in text) == (
        True,
        False,
        True,
    )
    assert "compare the layout with your engine" in said


def test_layers_have_the_keys_that_they_come_from() -> None:
    assert "layers: layer % 5 != 4  # sliding_window_pattern\n" in run("new", "-", given=json.dumps(GEMMA))[1]
    code, text, said = run("new", "-", given=json.dumps(less(GEMMA, "sliding_window_pattern")))
    assert (code, "layers: layer % 6 != 5  # layer_types by default\n" in text) == (0, True)
    assert "layer_types: left out, and read as the class of" in said


def test_a_configuration_without_an_architecture_is_doubted_like_an_unknown_one() -> None:
    for config in (less(GEMMA, "architectures"), {**GEMMA, "architectures": ["AcmeForCausalLM"]}):
        code, text, said = run("new", "-", given=json.dumps(config))
        assert (code, text) == (2, "")
        assert "error[F008]: nothing is written: the layout is in doubt" in said
        assert "to write it with its doubts: --accept-doubts" in said


@pytest.mark.parametrize(
    ("key", "meant"), [("num_kv_headz", "num_kv_heads"), ("num_kv_shraed_layers", "num_kv_shared_layers")]
)
def test_a_misspelled_key_is_said_with_the_one_that_is_missing(tmp_path: Path, key: str, meant: str) -> None:
    (said,) = new(tmp_path, {**PLAIN, key: 4}).notes
    assert said == f"`{key}` was not read: see in the model's code what it does, or correct it: `{meant}` is missing"


def test_the_title_is_the_models_name_or_its_architecture() -> None:
    assert "\ntitle: Gemma3ForCausalLM\n" in run("new", "-", given=json.dumps(GEMMA))[1]
    assert "\ntitle: acme-9b\n" in run("new", "-", given=json.dumps({**GEMMA, "_name_or_path": "acme/acme-9b"}))[1]
