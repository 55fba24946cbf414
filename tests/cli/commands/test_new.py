"""kvplan new: configurations of public models give what is shipped, any other one a file that holds or a named error.

The configurations are cut down to the keys about layers and caches, with a few others.
"""

from __future__ import annotations

import copy
import json
import random
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.paths import FIXTURES
from tests.shares import later

from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.dsl.configs.new_model import made
from kvplan.dsl.configs.write_model import periodic, quoted
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.model import Cache, Model
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.yaml_reader import YamlScalar, read_text

FOLDER = FIXTURES / "configs"
CONFIGS = sorted(FOLDER.glob("*.json"))
# Models with a remark that changes no number.
REMARKED = ("gpt-oss-20b",)
SIDE = "engine=custom,tp=1,block=256"
LIBRARY = load()


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


@dataclass(frozen=True)
class Written:
    """The files that `new` wrote for every configuration, in one folder, and its answers."""

    library: Library
    folder: Path
    answers: Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder, answers = tmp_path_factory.mktemp("models"), {}
    for config in CONFIGS:
        done = run("new", config, "-o", folder / f"my-{config.stem}.yaml", "--copy", "--format", "json")
        assert done.exit_code == 0, done.output
        answers[config.stem] = json.loads(done.stdout)
    return Written(load((), [folder]), folder, answers)


NAMES = [config.stem for config in CONFIGS]


@pytest.mark.parametrize("name", NAMES)
def test_a_public_configuration_stores_what_the_shipped_model_does(written: Written, name: str) -> None:
    assert name in written.answers[name]["same_as"]


@pytest.mark.parametrize("name", [*NAMES[::2], *later(NAMES[1::2])])
def test_what_is_written_compiles(written: Written, name: str) -> None:
    assert stored(written.library, f"my-{name}") == stored(written.library, name)


def stored(library: Library, model: str) -> list[str]:
    """The caches that a side stores for a model, without the caches' names."""
    bound = compile_pair(library, model, SIDE, SIDE, {}).decode
    return sorted(repr((cache.kind, cache.layers, cache.tensors, cache.needs)) for cache in bound.caches)


def test_what_is_written_has_no_errors(written: Written) -> None:
    done = run("check", written.folder)
    assert done.exit_code == 0
    assert done.output.endswith(f"\n{len(CONFIGS)} files: no errors\n")


# Names of layers in the published facts -> the kind that `new` writes, and the parameter that goes with it.
SORTS = {
    "full_attention": ("gqa", ""), "self_attention": ("gqa", ""), "sliding_window": ("gqa", "window"),
    "chunked_local_attention": ("gqa", "chunk"), "cross_attention": ("cross-attention", ""), "mla": ("mla", ""),
    "mamba1": ("mamba1", ""), "mamba2": ("mamba2", ""), "gdn": ("gdn", ""), "kda": ("kda", ""),
    "linear_attention": ("linear", ""), "short_conv": ("short_conv", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", [config.stem for config in CONFIGS])
def test_layers_and_heads_as_published(written: Written, name: str) -> None:
    config, model = json.loads((FOLDER / f"{name}.json").read_text()), written.library.model(f"my-{name}")
    fact = next(fact for fact in published() if described(fact) == counts(config, model, fact))
    for sort, layers in fact["layers"].items():
        kind, limit = SORTS.get(sort, ("", ""))
        held = [cache for cache in model.caches.values() if cache.kind == kind and bool(limit) == limited(cache)]
        assert not kind or sorted(n for cache in held for n in cache.layers) == own(fact, layers), sort
        assert all(not limit or int(cache.params[limit].text) == fact[limit] for cache in held)


def described(fact: Mapping[str, Any]) -> tuple[object, ...]:
    heads = fact.get("num_attention_heads", 0), fact.get("num_kv_heads")
    return fact["architecture"].split("For")[0], fact["num_hidden_layers"], *heads


def counts(config: Mapping[str, Any], model: Model, fact: Mapping[str, Any]) -> tuple[object, ...]:
    """The numbers that `described` states as a fact of a configuration; KV heads only if both have some."""
    inner = config.get("text_config", config)
    heads = inner.get("num_key_value_heads", fact.get("num_kv_heads")) if "num_kv_heads" in fact else None
    return config["architectures"][0].split("For")[0], model.layers, model.values.get("query_heads", 0), heads


def limited(cache: Cache) -> bool:
    return bool({"window", "chunk"} & cache.params.keys())


def own(fact: Mapping[str, Any], layers: list[int]) -> list[int]:
    """Layers that own a cache: those of a model whose last ones share caches are fewer."""
    return [layer for layer in layers if layer < fact["num_hidden_layers"] - fact.get("kv_shared_layers", 0)]


def published() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER.parent / "models.json").read_text())
    return found


def test_doubts_are_on_stderr_and_in_the_file(tmp_path: Path) -> None:
    config = {**json.loads((FOLDER / "bamba-9b.json").read_text()), "model_type": "unheard", "mamba_d_conv": None}
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = run("new", tmp_path / "config.json", "-o", tmp_path / "mine.yaml", "--copy", "--accept-doubts")
    assert done.stdout == ""
    assert "wrote" in done.stderr
    assert "mamba.conv: 4 is assumed" in done.stderr
    assert f"correct {tmp_path / 'mine.yaml'} by the model's own code" in done.stderr
    assert (
        "-conv-note: '4 is assumed: nothing gives conv_kernel or mamba_d_conv'" in (tmp_path / "mine.yaml").read_text()
    )
    notes = load([tmp_path / "mine.yaml"]).model("mine").notes
    assert ("mamba.conv", "4 is assumed: nothing gives conv_kernel or mamba_d_conv") in notes


@pytest.mark.parametrize("out", [[], ["-o", "mine.yaml"]])
@pytest.mark.parametrize("name", ["gpt-oss-20b", "bamba-9b"])
def test_a_shipped_checkpoint_is_named_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, out: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("new", FOLDER / f"{name}.json", *out)
    assert (done.exit_code, done.stdout, list(tmp_path.iterdir())) == (0, "", [])
    first, compile_it, copy, *doubts = done.stderr.splitlines()
    assert first.startswith(f"This is {name}; its layout comes with kvplan.")
    assert first.endswith("Nothing is written.")
    assert compile_it.split(":  ")[1].strip() == f"kvplan compile {name} --prefill SIDE --decode SIDE"
    assert bool(doubts) is (name in REMARKED)
    words = shlex.split(copy.split(":  ")[1])
    assert run(*words[1:]).exit_code == 0
    written = tmp_path / words[words.index("-o") + 1]
    assert name in made(LIBRARY, FOLDER / f"{name}.json", None).same
    assert load([written]).model(written.stem).layers == LIBRARY.model(name).layers


def test_a_known_checkpoint_is_named_in_json_and_written_to_no_file(tmp_path: Path) -> None:
    done = run("new", FOLDER / "bamba-9b.json", "-o", tmp_path / "mine.yaml", "--format", "json")
    answer = json.loads(done.stdout)
    assert (answer["known"], answer["written"], list(tmp_path.iterdir())) == ("bamba-9b", None, [])


def test_a_file_of_ones_own_is_named_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "layouts").mkdir()
    file, config = tmp_path / "layouts/mine.yaml", tmp_path / "config.json"
    odd = {"architectures": ["OddForCausalLM"], "num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 3}
    config.write_text(json.dumps({**odd, "dtype": "float16"}))
    assert run("new", config, "-o", file, "--accept-doubts").exit_code == 0
    done = run("new", config, "--layouts", tmp_path / "layouts")
    assert done.stderr.startswith(f"This is mine; its layout is {file}. Nothing is written.\n")
    command = f"kvplan compile mine --prefill SIDE --decode SIDE --layouts {tmp_path / 'layouts'}\n"
    assert f"  compile it:    {command}" in done.stderr
    config.write_text(json.dumps({**odd, "architectures": ["EvenForCausalLM"], "dtype": "float16"}))
    done = run("new", config, "--layouts", tmp_path / "layouts", "--accept-doubts")
    assert done.stderr.startswith(f"this stores the same as mine: {command}")


@pytest.mark.parametrize(("needs", "named"), [("", True), ("{window: 512}", False), ("{whole: 32}", False)])
def test_a_file_that_moves_fewer_tokens_is_another_layout(tmp_path: Path, needs: str, named: bool) -> None:
    (tmp_path / "layouts").mkdir()
    file, config = tmp_path / "layouts/mine.yaml", tmp_path / "config.json"
    odd = {"architectures": ["OddForCausalLM"], "num_hidden_layers": 3, "hidden_size": 96, "num_attention_heads": 3}
    config.write_text(json.dumps({**odd, "dtype": "float16"}))
    assert run("new", config, "-o", file, "--accept-doubts").exit_code == 0
    if needs:
        file.write_text(re.sub("( +)kind: gqa", rf"\1kind: gqa\n\1needs: {needs}", file.read_text()))
    done = run("new", config, "--layouts", tmp_path / "layouts", "--accept-doubts")
    assert done.stderr.startswith("This is mine;") is named, done.stderr


def test_a_file_for_another_class_is_another_layout(tmp_path: Path) -> None:
    """An engine may keep whole heads in place of the latents of one class, and not of another."""
    (tmp_path / "layouts").mkdir()
    file, config = tmp_path / "layouts/mine.yaml", tmp_path / "config.json"
    config.write_text(
        (FOLDER / "deepseek-v3.json").read_text().replace('"num_hidden_layers": 61', '"num_hidden_layers": 7')
    )
    assert run("new", config, "-o", file).exit_code == 0
    assert run("new", config, "--layouts", tmp_path / "layouts").stderr.startswith("This is mine;")
    file.write_text(file.read_text().replace("model_type: deepseek_v3", "model_type: minicpm3"))
    assert "This is mine" not in run("new", config, "--layouts", tmp_path / "layouts").stderr


def test_the_tokens_that_an_architecture_computes_again_are_written(tmp_path: Path) -> None:
    config = {
        "architectures": ["LLaDA2MoeModelLM"],
        "model_type": "llada2_moe",
        "num_hidden_layers": 24,
        "hidden_size": 2048,
    }
    config |= {"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "torch_dtype": "bfloat16"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert "    needs:\n      whole: 32\n" in run("new", tmp_path / "config.json", "--accept-doubts").stdout


@pytest.mark.parametrize(
    ("architecture", "model_type", "doubted"),
    [("PuffinHForCausalLM", "puffin_h", True), ("FalconH1ForCausalLM", "falcon_h1", False)],
)
def test_an_element_type_of_states_that_is_not_followed_is_said(
    architecture: str, model_type: str, doubted: bool, tmp_path: Path
) -> None:
    config = json.loads((FOLDER / "falcon-h1-34b.json").read_text())
    config |= {"architectures": [architecture], "model_type": model_type, "mamba_ssm_cache_dtype": "float32"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    told = json.loads(run("new", tmp_path / "config.json", "--copy", "--accept-doubts", "--format", "json").stdout)
    [said] = [note for note in told["notes"] if note.startswith("states are float32, which vLLM ")]
    assert (said in told["doubts"]) is doubted


@pytest.mark.parametrize("heads", [4, 8])
def test_a_file_of_ones_own_removes_no_doubt(tmp_path: Path, heads: int) -> None:
    """Whatever it says: only layouts that come with kvplan were compared with an engine."""
    (tmp_path / "layouts").mkdir()
    odd = {"architectures": ["OddForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
    (tmp_path / "config.json").write_text(json.dumps({**odd, "num_key_value_heads": 8, "dtype": "bfloat16"}))
    (tmp_path / "layouts" / "mine.yaml").write_text(
        "kvplan: 1\nmodel: mine\ntitle: Mine\nmatch: {architectures: OddForCausalLM}\ndtype: bf16\nquery_heads: 32\n"
        f"layers: 32\ncaches: {{attention: {{kind: gqa, layers: all, heads: {heads}, dim: 128}}}}\n"
    )
    words = (tmp_path / "config.json", "--layouts", tmp_path / "layouts")
    never = "OddForCausalLM was never compared with an engine"
    done = run("new", *words, "-o", tmp_path / "new.yaml", "--copy")
    assert (done.exit_code, never in done.output) == (2, True)
    told = run("doctor", *words, "--no-machine")
    in_doubt = f"THE LAYOUT IS IN DOUBT: the engine may store something else\n  {never}"
    assert (told.exit_code, in_doubt in told.output) == (4, True)
    named = run("doctor", words[0], "--layout", tmp_path / "layouts" / "mine.yaml", "--no-machine")
    assert (named.exit_code, f"remark: {never}" in named.output) == (4 if heads == 4 else 0, True)


def test_another_checkpoint_of_the_same_numbers_is_written() -> None:
    config = json.loads((FOLDER / "phi-4.json").read_text())
    text = json.dumps({**config, "architectures": ["OddForCausalLM"]})
    done = CliRunner().invoke(main, ["new", "-", "--accept-doubts"], input=text)
    assert done.stdout.startswith(
        "# Written by kvplan new from <stdin>. Comments name the keys that numbers are from.\nkvplan"
    )
    assert done.stderr.startswith("this stores the same as phi-4: kvplan compile phi-4 --prefill SIDE --decode SIDE\n")


def test_numbers_say_what_they_are_from() -> None:
    done = run("new", FOLDER / "bamba-9b.json", "--copy")
    assert "    heads: 128  # mamba_n_heads\n" in done.stdout
    assert "    dim: 128  # hidden_size, num_attention_heads\n" in done.stdout
    assert done.stderr == "This is bamba-9b; its layout comes with kvplan.\n"


def test_text_to_stdout_is_the_file(tmp_path: Path) -> None:
    run("new", FOLDER / "gemma-3-27b.json", "-o", tmp_path / "gemma3-text.yaml", "--copy")
    assert run("new", FOLDER / "gemma-3-27b.json", "--copy").stdout == (tmp_path / "gemma3-text.yaml").read_text()


def test_an_architecture_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "layouts").mkdir()
    (tmp_path / "layouts" / "odd.yaml").write_text(
        "kvplan: 1\nmodel: odd\ntitle: Odd\nmatch: {architectures: OddForCausalLM}\ndtype: bf16\nlayers: 4\n"
        "caches: {attention: {kind: gqa, layers: all, heads: 2, dim: 8}}\n"
        'config:\n  words: {layers: depth, hidden: width, layer_is: "at(letters(map), layer)"}\n'
        "  caches:\n    short: {kind: gqa, when: layer_is == 'S', heads: kv, dim: 16, window: reach}\n"
        "    long: {kind: gqa, when: layer_is == 'L', heads: kv, dim: \"first(size, assumed(32))\"}\n"
        "  remarks: [{when: reach > 9, say: 'reaches {reach}'}]\n"
    )
    odd = {"architectures": ["OddForCausalLM"], "depth": 4, "width": 64, "map": "SLLS", "kv": 2, "reach": 10}
    (tmp_path / "config.json").write_text(json.dumps(odd))
    words = ["--layouts", tmp_path / "layouts", "--format", "json", "--accept-doubts"]
    done = run("new", tmp_path / "config.json", *words)
    answer = json.loads(done.stdout)
    heads = "query_heads: left out: looked for decoder_attention_heads, n_head, n_heads and num_attention_heads"
    untyped = "nothing says an element type: bfloat16 is taken, and float16 lies the same"
    *notes, unlike = answer["notes"]
    unproven = "OddForCausalLM was never compared with an engine; its keys are assumed to mean what they mean elsewhere"
    assert notes == ["long.dim: 32 is assumed: nothing gives size", unproven, heads, untyped, "reaches 10"]
    assert answer["doubts"] == notes[:2]
    assert unlike.startswith(f"odd, of {tmp_path}/layouts/odd.yaml, is for such a configuration and stores otherwise")
    assert "  short:\n    kind: gqa\n    layers: [0, 3]  # map\n    heads: 2  # kv\n    dim: 16\n" in answer["text"]
    assert "  long:\n    kind: gqa\n    layers: [1, 2]  # map\n" in answer["text"]


@pytest.mark.parametrize(
    ("text", "code"),
    [("{", "F001"), ("[]", "F001"), ("{}", "F002"), ('{"num_hidden_layers": 2}', "F003"), ("\x00", "F001")],
)
def test_bad_configurations(tmp_path: Path, text: str, code: str) -> None:
    (tmp_path / "config.json").write_text(text)
    done = run("new", tmp_path / "config.json", "-o", tmp_path / "mine.yaml", "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, code)
    assert not (tmp_path / "mine.yaml").exists()


@pytest.mark.parametrize("name", ["", "none.json"])
def test_no_configuration(tmp_path: Path, name: str) -> None:
    done = run("new", tmp_path / name)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "error[F001]" in done.stderr


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    done = run("new", FOLDER / "phi-4.json", "-o", tmp_path / "mine.yaml")
    assert (done.exit_code, (tmp_path / "mine.yaml").read_text()) == (2, "mine")
    assert "error[F006]" in done.stderr


@pytest.mark.parametrize(
    ("layers", "count", "said"),
    [
        ((3, 7), 8, "layer % 4 == 3"), ((0, 1, 2, 4, 5, 6), 8, "layer % 4 != 3"), ((0, 2), 4, "layer % 2 == 0"),
        ((3,), 4, ""),
        ((0, 1), 8, ""), ((1, 5, 9), 10, "layer % 4 == 1"), ((1, 5), 10, ""),
        ((3, 4, 5, 6, 7), 8, "layer >= 3"), ((2, 4, 6, 8), 10, "layer >= 2 and layer % 2 == 0"),
    ],
)  # fmt: skip
def test_periods(layers: tuple[int, ...], count: int, said: str) -> None:
    assert periodic(layers, count) == said


@pytest.mark.parametrize("text", ["plain", "a: b", "it's #1", "", "- x", "{a", "a\nb\x07c", "true", "é", "x ", "*"])
def test_quoted(text: str) -> None:
    value = read_text(f"kvplan: 1\ntitle: {quoted(text)}\n", Path("x.yaml")).root.get("title")
    assert isinstance(value, YamlScalar)
    assert value == " ".join("".join(c if c.isprintable() else " " for c in text).split())


ODD: list[Any] = [
    None, True, False, 0, -1, 1, 3, 7, 999, 1001, 2**62, 2**63, 10**30, 1.5, float("nan"), float("inf"), "", "x", "8",
    "auto", "'", "\n#:{", "M*" * 5, "bfloat16", "float8", [], {}, [[]], [None], [1, "a"], ["full_attention"],
    ["sliding_attention"] * 3, {"a": {"b": 1}},
]  # fmt: skip
KEYS = [
    "sliding_window", "layer_types", "head_dim", "num_key_value_heads", "hidden_size", "num_hidden_layers", "dtype",
    "text_config", "no_rope_layers", "attention_chunk_size", "attn_layer_indices", "kv_lora_rank", "linear_attn_config",
    "mamba_d_head", "is_encoder_decoder", "layer", "layers", "own", "_name_or_path", "assumed()", "architectures",
]  # fmt: skip


def changed(config: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """A configuration with one to three keys lost, added or of another value, a list cut short."""
    found = copy.deepcopy(config)
    for _ in range(rng.randint(1, 3)):
        inner = [value for value in found.values() if isinstance(value, dict) and value]
        table = rng.choice(inner) if inner and rng.random() < 0.6 else found
        key, draw = rng.choice([*table, rng.choice(KEYS)]), rng.random()
        if draw < 0.2:
            table.pop(key, None)
        elif draw < 0.3 and isinstance(table.get(key), list):
            table[key] = table[key][: rng.randint(0, len(table[key]))]
        else:
            table[key] = copy.deepcopy(rng.choice(ODD))
    return found


@pytest.mark.parametrize("seed", [*range(6), *later(range(6, 30))])
def test_every_other_configuration_is_a_file_that_holds_or_a_named_error(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for config in rng.sample(CONFIGS, 4):
        (tmp_path / "config.json").write_text(json.dumps(changed(json.loads(config.read_text()), rng)))
        assert outcome(tmp_path / "config.json") in ("held", *(f"F00{n}" for n in range(1, 8)))


def outcome(config: Path) -> str:
    """`held` for a file whose own name it has, or the code of the error."""
    try:
        new = made(LIBRARY, config, None)
    except DslError as error:
        return error.diagnostics[0].code
    return "held" if f".\nkvplan: 1\nmodel: {new.name}\n" in new.text else new.text
