"""kvplan new: configurations whose numbers stand where few look for them are read, or are an error, never wrong.

Each has the published keys about layers and heads, as the code of engines reads them; of block_configs, which has 80
long entries, the number of layers with attention is the published one and the order of them is made up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.paths import FIXTURES

from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.dsl.check import check, doubts
from kvplan.dsl.configs.new_model import UNPROVEN, NewModel, made
from kvplan.dsl.configs.recognise import UNKNOWN
from kvplan.dsl.configs.same_model import parsed
from kvplan.dsl.library import load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

LIBRARY, CONFIGS = load(), FIXTURES / "configs"
Config = Mapping[str, Any]
PLAIN: Config = {
    "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 4, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "dtype": "float16",
}  # fmt: skip
BLOCKS = [{"attention": {"n_heads_in_group": 8, "no_op": False, "replace_with_linear": False}, "ffn": {}}] * 49 + [
    {"attention": {"n_heads_in_group": None, "no_op": True, "replace_with_linear": False}, "ffn": {}}
] * 31
NEMOTRON_SUPER: Config = {  # Llama-3.3-Nemotron-Super-49B
    "architectures": ["DeciLMForCausalLM"], "model_type": "nemotron-nas", "hidden_size": 8192,
    "num_attention_heads": 64, "num_hidden_layers": 80, "num_key_value_heads": None, "intermediate_size": None,
    "torch_dtype": "bfloat16", "block_configs": BLOCKS,
}  # fmt: skip
SORTS = ["full_attention" if layer % 4 == 0 else "sliding_attention" for layer in range(45)]
STEP: Config = {  # Step-3.5-Flash
    "architectures": ["Step3p5ForCausalLM"], "model_type": "step3p5", "hidden_size": 4096, "num_hidden_layers": 45,
    "num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128, "sliding_window": 512,
    "layer_types": [*SORTS, *["sliding_attention"] * 3], "torch_dtype": "bfloat16",
    "attention_other_setting": {
        "attention_type": "sliding_attention", "num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128,
        "true_head_dim": 128,
    },
}  # fmt: skip
RING: Config = {  # Ring-flash-linear-2.0
    "architectures": ["BailingMoeLinearV2ForCausalLM"], "model_type": "bailing_moe_linear", "hidden_size": 4096,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "layer_group_size": 8, "group_norm_size": 4, "torch_dtype": "bfloat16",
}  # fmt: skip
HUNYUAN: Config = {  # Hunyuan-Large
    "architectures": ["HunYuanForCausalLM"], "model_type": "hunyuan", "hidden_size": 6400, "num_hidden_layers": 64,
    "num_attention_heads": 80, "num_key_value_heads": 8, "attention_head_dim": 128, "use_cla": True,
    "cla_share_factor": 2, "torch_dtype": "bfloat16",
}  # fmt: skip
MISTRAL: Config = {  # params.json of a Mistral Small 3
    "dim": 5120, "n_layers": 40, "head_dim": 128, "hidden_dim": 32768, "n_heads": 32, "n_kv_heads": 8,
    "rope_theta": 1e8, "norm_eps": 1e-5, "vocab_size": 131072,
}  # fmt: skip
GEMMA_4B: Config = {  # gemma-3-4b: what it leaves out are defaults of its architecture
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "torch_dtype": "bfloat16",
    "text_config": {"model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024},
}  # fmt: skip
GEMMA_12B: Config = {
    **GEMMA_4B,
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 3840, "num_hidden_layers": 48, "sliding_window": 1024,
        "num_attention_heads": 16, "num_key_value_heads": 8,
    },
}  # fmt: skip
# (kind, layers, KV heads, elements of a head) of each cache.
Stored = tuple[str, tuple[int, ...], str, str]
LAYERS_45 = tuple(range(45))


def new(tmp_path: Path, config: Config) -> NewModel:
    (tmp_path / "config.json").write_text(json.dumps(config))
    return made(LIBRARY, tmp_path / "config.json", None)


def stored(answer: NewModel) -> set[Stored]:
    model = parsed(LIBRARY, answer.text, answer.name, SourceSpan("x", 1, 1, 1))
    return {
        (cache.kind, cache.layers, cache.params["heads"].text, cache.params["dim"].text)
        for cache in model.caches.values()
    }


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize(
    ("config", "caches"),
    [
        (NEMOTRON_SUPER, {("gqa", tuple(range(49)), "8", "128")}),
        (STEP, {("gqa", LAYERS_45[::4], "8", "128"),
                ("gqa", tuple(n for n in LAYERS_45 if n % 4), "8", "128")}),
        (RING, {("gqa", (7, 15, 23, 31), "4", "128"),
                ("linear", tuple(n for n in range(32) if n % 8 != 7), "32", "128")}),
        (GEMMA_4B, {("gqa", tuple(range(5, 34, 6)), "4", "256"),
                    ("gqa", tuple(n for n in range(34) if n % 6 != 5), "4", "256")}),
        (GEMMA_12B, {("gqa", tuple(range(5, 48, 6)), "8", "256"),
                     ("gqa", tuple(n for n in range(48) if n % 6 != 5), "8", "256")}),
    ],
    ids=["nemotron-super", "step", "ring-linear", "gemma-3-4b", "gemma-3-12b"],
)  # fmt: skip
def test_numbers_are_read_where_they_stand(tmp_path: Path, config: Config, caches: set[Stored]) -> None:
    answer = new(tmp_path, config)
    assert stored(answer) == caches
    assert {*answer.doubts} <= {UNPROVEN.format(name) for name in config["architectures"]}


def test_a_sort_of_layers_has_numbers_of_its_own(tmp_path: Path) -> None:
    other = {**STEP["attention_other_setting"], "num_attention_groups": 4, "head_dim": 64}
    found = stored(new(tmp_path, {**STEP, "attention_other_setting": other}))
    assert {(heads, dim) for _, layers, heads, dim in found if 1 in layers} == {("4", "64")}
    assert {(heads, dim) for _, layers, heads, dim in found if 0 in layers} == {("8", "128")}


def test_layers_that_use_the_cache_of_another_are_in_doubt(tmp_path: Path) -> None:
    answer = new(tmp_path, HUNYUAN)
    assert stored(answer) == {("gqa", tuple(range(0, 64, 2)), "8", "128")}
    assert [doubt for doubt in answer.doubts if "an engine may keep them for every layer" in doubt]
    assert stored(new(tmp_path, {**HUNYUAN, "use_cla": False})) == {("gqa", tuple(range(64)), "8", "128")}


def test_params_of_mistral_say_all_but_an_element_type(tmp_path: Path) -> None:
    answer = new(tmp_path, MISTRAL)
    assert stored(answer) == {("gqa", tuple(range(40)), "8", "128")}
    (unnamed,) = answer.doubts
    assert unnamed.startswith("`architectures` is missing: nothing can be compared")
    assert any("nothing says an element type: bfloat16 is taken" in note for note in answer.notes)


def test_a_model_is_known_by_any_name_of_its_architecture(tmp_path: Path) -> None:
    config = json.loads((Path(__file__).parents[2] / "fixtures/configs/minimax-m3.json").read_text())
    assert new(tmp_path, {**config, "architectures": ["MiniMaxM3ForCausalLM"]}).same == ("minimax-m3",)


def test_heads_that_nothing_counts_are_named(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 2, "hidden_size": 64, "layer_types": ["full_attention"] * 2, "dtype": "float16"}
    with pytest.raises(DslError, match="F007") as caught:
        new(tmp_path, config)
    assert "add num_attention_heads and num_key_value_heads" in str(caught.value)


DOUBTFUL = {**PLAIN, "my_kv_heads": 3, "ignore_index": -100, "num_beam_groups": 1}


def test_a_doubt_about_a_number_is_an_error_until_it_is_accepted(tmp_path: Path) -> None:
    config, out = tmp_path / "config.json", tmp_path / "mine.yaml"
    config.write_text(json.dumps(DOUBTFUL))
    done = run("new", config, "-o", out)
    assert (done.exit_code, out.exists()) == (2, False)
    assert "error[F008]" in done.stderr
    assert "`my_kv_heads` was not read" in done.stderr
    assert "--accept-doubts" in done.stderr
    assert run("new", config, "-o", out, "--accept-doubts").exit_code == 0


def test_doubts_come_first_and_known_keys_are_not_named(tmp_path: Path) -> None:
    answer = new(tmp_path, {**DOUBTFUL, "architectures": ["OlmoForCausalLM"]})
    assert answer.doubts == ("`my_kv_heads` was not read: see in the model's code what it does",)
    assert answer.notes == (*answer.doubts, UNKNOWN)


def test_noise_alone_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**PLAIN, "ignore_index": -100}))
    assert run("new", tmp_path / "config.json").exit_code == 0


def test_accepted_doubts_are_kept_and_repeated(tmp_path: Path) -> None:
    config, out = tmp_path / "config.json", tmp_path / "mine.yaml"
    config.write_text(json.dumps(DOUBTFUL))
    run("new", config, "-o", out, "--accept-doubts")
    doubt = "`my_kv_heads` was not read: see in the model's code what it does"
    assert list(load([out]).model("mine").doubts) == [doubt]
    checked = run("check", out)
    assert (checked.exit_code, f"warning[W001]: {doubt}" in checked.stdout) == (0, True)
    assert checked.stdout.endswith("1 file: no errors, 1 warning\n")
    plans = ["--prefill", "tp=1", "--decode", "tp=1", "-o", tmp_path / "plans"]
    compiled = run("compile", out, *plans)
    coded = f"in doubt: {doubt} (W001)"
    assert (compiled.exit_code, f"mine: {coded}" in compiled.stderr) == (0, True)
    assert json.loads(run("compile", out, *plans, "--format", "json").stdout)["doubts"] == [f"mine: {coded}"]
    plan = tmp_path / "plans/mine/p_tp1__d_tp1.py"
    assert f"{coded.capitalize()}.".casefold() in " ".join(plan.read_text().split()).casefold()
    assert coded in " ".join(run("explain", plan).stdout.split())
    disk, fresh = (run("explain", *words, "--format", "json").stdout for words in ([plan], [out, *plans[:4]]))
    assert json.loads(disk)["notes"] == json.loads(fresh)["notes"]


def test_a_doubt_changes_no_digest(tmp_path: Path) -> None:
    out = tmp_path / "mine.yaml"
    (tmp_path / "config.json").write_text(json.dumps(DOUBTFUL))
    run("new", tmp_path / "config.json", "-o", out, "--accept-doubts")
    before = compile_pair(load([out]), "mine", "tp=1", "tp=2").plan.digest
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(line for line in lines if not line.startswith(("doubts:", "  - "))))
    assert compile_pair(load([out]), "mine", "tp=1", "tp=2").plan.digest == before


@pytest.mark.parametrize(
    "scheme",
    [{"kv_cache_scheme": {"num_bits": 8, "type": "float", "dynamic": False}}, {"kv_cache_quant_algo": "FP8"}],
)
def test_a_cache_meant_for_8_bit_floats_says_what_to_give(tmp_path: Path, scheme: Config) -> None:
    answer = new(tmp_path, {**PLAIN, "quantization_config": {"quant_method": "x", **scheme}})
    assert answer.doubts == ()
    assert "give both sides kv_dtype=fp8" in answer.notes[0]


def test_a_cache_of_another_scheme_says_nothing_of_fp8(tmp_path: Path) -> None:
    scheme = {"kv_cache_scheme": {"num_bits": 8, "type": "int"}}
    assert "fp8" not in "".join(new(tmp_path, {**PLAIN, "quantization_config": scheme}).notes)


def test_a_folder_of_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PLAIN))
    assert run("new", tmp_path).stdout == run("new", tmp_path / "config.json").stdout
    none = run("new", tmp_path / "none")
    assert (none.exit_code, "error[F001]" in none.stderr) == (2, True)


MODEL = (
    "kvplan: 1\nmodel: w\ntitle: W\ndtype: bf16\nquery_heads: 32\nlayers: 1\n"
    "caches:\n  a: {kind: gqa, layers: all, dim: 128, %s}\n"
)


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ("heads: 5", ["32 query heads are no multiple of 5 KV heads"]),
        ("heads: 64", ["64 KV heads are more than the 32 query heads that they are for"]),
        ("heads: 8, window: 0", ["a window of 0 tokens is none: all tokens are kept"]),
        ("heads: 8, sink: 4", ["without a window or chunk all tokens are kept, not the first 4 alone"]),
        ("heads: 8, window: 64, sink: 64", ["as many first tokens as the window has: 64, 64"]),
        ("heads: 8, window: 64, sink: 4", []),
        ("heads: 8", []),
        ("heads: 8, window: 128", []),
    ],
)
def test_check_doubts_what_new_doubts(tmp_path: Path, numbers: str, said: list[str]) -> None:
    (tmp_path / "w.yaml").write_text(MODEL % numbers)
    assert [d.message for d in doubts([tmp_path / "w.yaml"])] == said
    done = run("check", tmp_path / "w.yaml", "--format", "json")
    assert (done.exit_code, [d["code"] for d in json.loads(done.stdout)]) == (0, ["W002"] * len(said))


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ("latent: 512, rope: 64, record: fp8_ds_mla", []),
        ("latent: 512, rope: 64", []),
        ("latent: 500, rope: 64, record: fp8_ds_mla", ["fp8_ds_mla is for 512 + 64 elements, not 500 + 64"]),
        ("latent: 512, rope: 32, record: nvfp4_ds_mla", ["nvfp4_ds_mla is for 512 + 64 elements, not 512 + 32"]),
        ("latent: 448, rope: 64, record: fp8_ds_mla_584", []),
        ("latent: 512, rope: 64, record: fp8_ds_mla_528", ["fp8_ds_mla_528 is for 448 + 64 elements, not 512 + 64"]),
    ],
)
def test_records_of_a_fixed_shape_are_doubted_for_another(tmp_path: Path, numbers: str, said: list[str]) -> None:
    (tmp_path / "w.yaml").write_text(MODEL.replace("gqa", "mla").replace("dim: 128, ", "") % numbers)
    assert [d.message for d in doubts([tmp_path / "w.yaml"])] == said


def test_a_plan_says_what_check_doubts_of_numbers(tmp_path: Path) -> None:
    """The plan's header and the output of compile repeat the warning of check."""
    (tmp_path / "w.yaml").write_text(MODEL % "heads: 64")
    sides = ("--prefill", "tp=1", "--decode", "tp=2")
    compiled = run("compile", tmp_path / "w.yaml", *sides, "-o", tmp_path / "plans")
    doubt = "64 KV heads are more than the 32 query heads that they are for"
    assert (compiled.exit_code, f"w: in doubt: {doubt} (W002)" in compiled.stderr) == (0, True)
    assert "64 KV heads are more than" in (tmp_path / "plans" / "w" / "p_tp1__d_tp2.py").read_text()


HYBRID: Config = {
    "architectures": ["StrixForCausalLM"], "model_type": "strix", "num_hidden_layers": 12, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "dtype": "bfloat16", "hidden_size": 4096, "full_attention_interval": 4,
    "linear_num_key_heads": 16, "linear_num_value_heads": 48, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4, "mamba_ssm_dtype": "float32", "num_nextn_predict_layers": 1,
}  # fmt: skip
SPARSE: Config = {
    "architectures": ["LynxForCausalLM"], "model_type": "lynx", "num_hidden_layers": 4, "num_attention_heads": 64,
    "hidden_size": 4096, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
    "index_head_dim": 128, "index_n_heads": 32, "index_topk": 2048, "dtype": "bfloat16", "num_nextn_predict_layers": 2,
}  # fmt: skip


def toggled(text: str) -> str:
    """The text without `# ` before draft layers and their number, as an editor takes it away."""
    return re.sub("^# (?=drafts:|  )", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(("config", "drafts"), [(HYBRID, ["draft"]), (SPARSE, ["draft-indexer", "draft-attention"])])
def test_draft_layers_are_comments_that_doctor_takes(config: Config, drafts: list[str], tmp_path: Path) -> None:
    path, layout = tmp_path / "config.json", tmp_path / "mine.yaml"
    path.write_text(json.dumps(config))
    text = made(LIBRARY, path, layout).text
    lines = [line for line in text.splitlines() if line.startswith("#   ")]
    assert [line.split(":")[0] for line in lines] == [f"#   {name}" for name in drafts]
    for on in (False, True):
        layout.write_text(toggled(text) if on else text)
        words = ["doctor", str(path), "--layout", str(layout), "--no-machine", "--format", "json"]
        said = json.loads(CliRunner().invoke(main, words).stdout)["model"]
        assert "uncomment" not in str(said)
        told = [note for note in (*said["notes"], *said["doubts"]) if note.startswith(("drafts:", "layer"))]
        missing = f"drafts: {config['num_nextn_predict_layers']} in {path} (num_nextn_predict_layers), 0 in"
        assert [note.startswith(missing) and "stops at start-up (I005)" in note for note in told] == [True] * (not on)


@cache
def drafting() -> dict[str, NewModel]:
    """The files written from the configurations of tests that say how many draft layers there are."""
    paths = (path for path in sorted(CONFIGS.glob("*.json")) if re.search("nextn|mtp", path.read_text()))
    written = {path.stem: made(LIBRARY, path) for path in paths}
    return {name: new for name, new in written.items() if new.found.drafts.value}


def test_draft_layers_are_one_comment_that_is_taken_away_in_one_way(tmp_path: Path) -> None:
    news = drafting()
    assert {"deepseek-v3", "deepseek-v4-flash"} <= {*news}
    for new in news.values():
        path, text = tmp_path / f"{new.name}.yaml", toggled(new.text)
        path.write_text(text)
        assert check([path]) == [], new.name
        assert ("\ndrafts: " in text, "\n# drafts: " in text) == (True, False)


def test_layers_that_are_not_alike_say_nothing_of_draft_layers() -> None:
    """The last of `compress_ratios`, that of the draft layer, is 0: it has a window alone."""
    text = drafting()["deepseek-v4-flash"].text
    assert "\n# drafts: 1" in text
    assert "layers: drafts" not in text


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        (HYBRID, ["    value_dim: 128  # linear_value_head_dim", "    -ssm_dtype-note: 'states are float32, "]),
        (SPARSE, ["    dim: 128  # index_head_dim"]),
    ],
)
def test_a_number_of_its_own_key_is_written_although_it_is_the_default(
    config: Config, lines: list[str], tmp_path: Path
) -> None:
    """A doubt about a number stands at its cache, whether or not the number is written."""
    (tmp_path / "config.json").write_text(json.dumps(config))
    text = made(LIBRARY, tmp_path / "config.json", tmp_path / "mine.yaml").text
    assert [line for line in lines if f"\n{line}" not in text] == []
    assert "dim_v" not in text
