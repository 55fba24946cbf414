"""Errors of a command line or a deployment file name their place and have the form that was asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.paths import ROOT

from kvplan.cli.main import main

SIDES = ["--prefill", "tp=4", "--decode", "tp=2"]


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def deployment(folder: Path, entry: str) -> str:
    (folder / "deploy.yaml").write_text(f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n  - {entry}\n")
    return str(folder / "deploy.yaml")


def own_model(path: Path) -> None:
    text = files("kvplan.layouts").joinpath("models/mixtral-8x7b.yaml").read_text()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.replace("model: mixtral-8x7b", f"model: {path.stem}"))


def test_a_model_named_by_path_is_compiled(tmp_path: Path) -> None:
    own_model(tmp_path / "sub/mine.yaml")
    file = deployment(tmp_path, "{models: [sub/mine.yaml], prefill: [tp=1], decode: [tp=2]}")
    assert run("check", file).exit_code == 0
    done = run("compile", file, "-o", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out/mine/p_tp1__d_tp2.py").is_file()


def test_check_reports_all_of_a_deployment(tmp_path: Path) -> None:
    own_model(tmp_path / "mine.yaml")
    entry = '{models: [none.yaml, mine.yaml], prefill: [tpp=1, "tp=2,order=hdn"], decode: [tp=x/2, tp], '
    file = deployment(tmp_path, entry + "options: {elect: spred, elekt: one}}")
    said = run("check", file, "--format", "json")
    found = {(d["code"], d["line"], d["column"]) for d in json.loads(said.stdout)}
    line = (tmp_path / "deploy.yaml").read_text().splitlines()[4]
    words = {"none": "Y012", "tpp": "S005", "tp=2,": "S009", "tp=x": "S004", "tp]": "S001", "spred": "S015"}
    expected = {(code, 5, line.index(word) + 1) for word, code in words.items()}
    assert found == expected | {("S015", 5, line.index("elekt") + 1)}
    assert said.exit_code == 2


def test_check_of_no_file() -> None:
    said = run("check", "nope.yaml", "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)[0]["code"]) == (2, "Y012")


def test_simulate_goes_on_after_a_refusal() -> None:
    words = ["simulate", "llama-3.1-8b", "--prefill", "tp=3/1", "--decode", "tp=1"]
    said = run(*words)
    assert said.exit_code == 3
    assert "tp=3 -> tp=1" in said.stderr
    assert "tp=1 -> tp=1\n  tokens 3:100: OK: " in said.stdout
    answer = json.loads(run(*words, "--format", "json").stdout)
    assert answer["llama-3.1-8b: tp=3 -> tp=1"]["error"] == answer["error"]
    assert answer["llama-3.1-8b: tp=1 -> tp=1"]["right"]


@pytest.mark.parametrize(
    "words",
    [
        ["compile", "--format", "json"],
        ["compile", "llama-3.1-8b", "--format=json"],
        ["compile", "llama-3.1-8b", "--nope", "--format", "json"],
        ["nope", "--format", "json"],
        ["--nope", "--format", "json"],
    ],
)
def test_usage_errors_as_json(words: list[str]) -> None:
    said = run(*words)
    assert said.exit_code == 2
    error = json.loads(said.stdout)["error"]
    assert set(error) == {"code", "message", "help"}
    assert all(error.values())


def test_usage_errors_as_text() -> None:
    said = run("compile", "llama-3.1-8b")
    assert (said.exit_code, said.stdout) == (2, "")
    assert "Usage:" in said.stderr


@pytest.mark.parametrize(("verb", "meant"), [("compil", " Did you mean 'compile'?"), ("zzz", "")])
def test_an_unknown_verb_is_told_the_nearest(verb: str, meant: str) -> None:
    said = run(verb)
    assert (said.exit_code, said.output.splitlines()[-1]) == (2, f"Error: No such command '{verb}'.{meant}")


def test_plans_are_not_written_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for out in (tmp_path / "file", tmp_path / "file/plans"):
        said = run("compile", "qwen3-0.6b", *SIDES, "-o", str(out))
        assert (said.exit_code, said.output.count("name a directory")) == (2, 1), said.output
    assert (tmp_path / "file").read_text() == "kept"
    (tmp_path / "out").mkdir()
    (tmp_path / "out/qwen3_0_6b").write_text("kept")
    assert "out/qwen3_0_6b is a file" in run("compile", "qwen3-0.6b", *SIDES, "-o", str(tmp_path / "out")).output


def test_check_says_missing_stale_and_current(tmp_path: Path) -> None:
    words = ["compile", "llama-3.1-8b", *SIDES, "-o", str(tmp_path), "--check"]
    missing = run(*words)
    assert (missing.exit_code, missing.stdout.count("\n")) == (1, 2)
    assert missing.stdout.count("index.json") == 1
    assert "missing" in missing.stdout
    assert state(words) == ("missing", True)
    run(*words[:-1])
    assert state(words) == ("current", False)
    path = tmp_path / "llama_3_1_8b/p_tp4__d_tp2.py"
    path.write_text(path.read_text() + "\n")
    assert state(words) == ("stale", True)


def state(words: list[str]) -> tuple[str, bool]:
    (plan,) = json.loads(run(*words, "--format", "json").stdout)["plans"]
    return plan["state"], bool(plan["diff"])


def test_the_summary_counts_refusals(tmp_path: Path) -> None:
    said = run("compile", "llama-3.1-8b", "--prefill", "tp=1/3", "--decode", "tp=2", "-o", str(tmp_path))
    assert "2 pairs: 1 written, 0 up to date, 1 refused" in said.stderr


@pytest.mark.parametrize(
    ("model", "expected"),
    [("no/such.yaml", "no such file"), ("such.yam", "no such file"), ("no/such", "no such file"), ("lama", "unknown")],
)
def test_names_on_the_command_line(model: str, expected: str) -> None:
    said = run("compile", model, *SIDES)
    assert said.exit_code == 2
    assert expected in said.stderr
    assert "<argument>" not in said.stderr


@pytest.mark.parametrize(
    ("verb", "kind"),
    [("show", "a deployment"), ("matrix", "a deployment"), ("explain", "a deployment"), ("show", "a kind")],
)
def test_a_file_that_is_no_model_says_what_it_is(tmp_path: Path, verb: str, kind: str) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("kvplan: 1\ndeployment: ours\nplans: [{models: qwen3-0.6b, prefill: tp=1, decode: tp=2}]\n")
    path = path if kind == "a deployment" else ROOT / "layouts/kinds/gqa.yaml"
    said = run(verb, str(path), *([] if verb == "explain" else SIDES))
    assert (said.exit_code, f"{path} is {kind}, not a model" in said.stderr) == (2, True), said.stderr


@pytest.mark.parametrize(
    ("words", "help"),
    [
        (["compile", "{at}/config.json", *SIDES], "`kvplan new` writes a model file"),
        (["compile", "{at}/plan.py", *SIDES], "a plan is compiled already"),
        *((words, "name it: {at}/plan.py") for words in (["explain", "{at}"], ["show", "{at}"])),
        *((words, "name it: {at}/plan.py") for words in (["trace", "{at}"], ["simulate", "{at}"])),
        *(([word, "{at}/no.py"], "give the path of a plan") for word in ("explain", "show", "trace", "simulate")),
        (["simulate", "{at}/prod.yaml"], "give a model's name"),
        (["diff", "{at}/index.json", "{at}"], "give its directory"),
        (["explain", "vlllm"], "did you mean 'vllm'?"),
        (["explain", "PAGE_BYTS"], "did you mean 'PAGE_BYTES'?"),
        (["explain", "cost"], "did you mean 'COST'?"),
        (["explain", "C999"], "those with C are C101 to C"),
    ],
)
def test_what_something_else_is_for_is_said(tmp_path: Path, words: list[str], help: str) -> None:
    for name in ("config.json", "index.json"):
        (tmp_path / name).write_text("{}")
    (tmp_path / "plan.py").write_text("Emitted by kvplan from a-model\n")
    (tmp_path / "prod.yaml").write_text("kvplan: 1\ndeployment: prod\nplans: []\n")
    said = run(*(word.format(at=tmp_path) for word in words))
    assert (said.exit_code, said.stderr.count("error[")) == (2, 1), said.output
    assert help.format(at=tmp_path) in said.stderr


def test_a_file_of_another_type_is_one_error(tmp_path: Path) -> None:
    said = run("diff", str(ROOT / "layouts/models/llama-3.yaml"), str(tmp_path))
    assert (said.exit_code, said.stderr.count("error["), "not a model" in said.stderr) == (2, 1, True), said.stderr


def test_a_kind_is_explained_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text((ROOT / "layouts/kinds/gqa.yaml").read_text().replace("kind: gqa", "kind: ours"))
    assert run("explain", str(path)).stdout.startswith("ours: ")


@pytest.mark.parametrize("words", [["explain"], ["diff", "{old}"]])
def test_a_bad_plan_is_named(tmp_path: Path, words: list[str]) -> None:
    old, bad = tmp_path / "old.py", tmp_path / "bad.py"
    old.write_text("x = ")
    bad.write_text("y = ")
    said = run(*(word.format(old=bad) for word in words), str(bad if words == ["explain"] else old))
    assert said.exit_code == 2
    assert str(bad) in said.stderr


def test_git_is_not_quoted() -> None:
    said = run("diff", "no-such-revision", "plans")
    assert (said.exit_code, "fatal" in said.stderr) == (2, False)
    assert "S021" in said.stderr


def test_list_names_the_options_of_engines() -> None:
    engines = json.loads(run("list", "--format", "json").stdout)["engines"]
    assert "hnd" in engines["vllm"]["options"]["order"]["aliases"]
    assert "tp" in engines["vllm"]["mesh"]


@pytest.mark.parametrize(("verb", "option"), [("demo", "--out"), ("bench", "--format")])
def test_options_by_their_common_names(verb: str, option: str) -> None:
    assert option in run(verb, "--help").stdout


def test_a_folder_without_layout_files_is_not_the_one_that_was_meant(tmp_path: Path) -> None:
    done = run("check", str(tmp_path))
    assert (done.exit_code, "no layout file (.yaml or .yml, with the key kvplan) lies in" in done.output) == (2, True)
    (tmp_path / "kestrel.yml").write_text("kvplan: 1\nkind: kestrel\nheadz: 2\n")
    assert "unknown key 'headz'" in run("check", str(tmp_path)).output


DEPLOYMENT = """kvplan: 1
deployment: ours
plans:
  - models: [llama-3.1-8b]
    prefill: tp=4
    decode: tp=2,order=nhd
    options: {OPTIONS}
"""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("strategy: auto, machine: xeon-2-cores-shared-memory", []),
        ("strategy: auto, machine: nope", ["unknown machine 'nope'"]),
        ("machine: xeon-2-cores-shared-memory", ["a machine, and nothing to be chosen by it"]),
        ("strategy: direct, machine: xeon-2-cores-shared-memory", ["a machine, and nothing to be chosen by it"]),
        ("strategy: foo, machine: nope", ["strategy=foo is not a choice", "unknown machine 'nope'"]),
        ("machines: nope", ["unknown compile option 'machines'", "did you mean 'machine'?"]),
    ],
)
def test_options_of_a_deployment_are_checked_together(tmp_path: Path, options: str, told: list[str]) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text(DEPLOYMENT.replace("OPTIONS", options))
    done = run("check", str(path))
    assert all(text in done.output for text in told), done.output
    assert done.exit_code == (2 if told else 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--tokens", "0:99999999999"], "is more than is simulated (16,777,216)"),
        (["--tokens", "0:1000000"], "a plane of 976 MiB is more than is simulated (256 MiB)"),
    ],
)
def test_a_simulation_has_a_bound(words: list[str], told: str) -> None:
    done = run("simulate", "llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2", *words)
    assert (done.exit_code, told in done.output) == (2, True)


def test_of_a_large_pool_some_blocks_are_drawn() -> None:
    done = run("simulate", "llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2,blocks=99999999999")
    assert (done.exit_code, "OK" in done.output) == (0, True)


def test_a_request_has_tokens_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "asked.json"
    path.write_text("{}")
    words = ("--prefill", "tp=4", "--decode", "tp=2", "--request", str(path), "--tokens", "0:5")
    assert "give --request or --tokens" in run("simulate", "llama-3.1-8b", *words).output


def test_an_answer_that_nobody_reads_is_none() -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "kvplan.cli", "list"], stdout=write, stderr=subprocess.PIPE, check=False
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_file_that_cannot_be_written_is_an_answer_in_json(tmp_path: Path) -> None:
    said = run("show", "qwen3-0.6b", *SIDES, "-o", str(tmp_path / "none/page.html"), "--format", "json")
    told = json.loads(said.stdout)["error"]
    assert (said.exit_code, told["code"]) == (2, "S035")
    assert told["message"] == f"{tmp_path / 'none/page.html'}: No such file or directory"


def test_a_fleet_that_is_no_file_is_told_so() -> None:
    said = run("fleet", "engines.json")
    assert (said.exit_code, "engines.json is neither a file nor a URL" in said.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "needless"),
    [
        (["show", "qwen3-0.6b", *SIDES, "--svg", "--before", "old.py"], "--before old.py"),
        (["show", "qwen3-0.6b", *SIDES, "--worker", "0"], "--worker 0"),
        (["doctor", "config.json", "--engine", "vllm", "--release", "0.30"], "--release 0.30"),
        (["doctor", "config.json", "--peer-engine", "vllm", "--peer-platform", "cpu"], "--peer-platform cpu"),
        (["diff", "old", "new", "--prefix", "/ours/", "--seconds", "3"], "--prefix /ours/ --seconds 3.0"),
        (["fleet", __file__, "--seconds", "3"], "--seconds 3.0"),
    ],
)
def test_an_option_that_would_say_nothing_is_refused(words: list[str], needless: str) -> None:
    said = run(*words)
    assert (said.exit_code, said.stderr.strip().endswith(f"leave out {needless}")) == (2, True), said.stderr


def test_a_page_on_stdout_is_that_of_a_file(tmp_path: Path) -> None:
    run("show", "qwen3-0.6b", *SIDES, "-o", str(tmp_path / "page.html"))
    assert run("show", "qwen3-0.6b", *SIDES, "-o", "-").stdout == (tmp_path / "page.html").read_text()


def test_a_file_under_another_name_hides_no_warning(tmp_path: Path) -> None:
    text = "kvplan: 1\nmodel: mini\ntitle: t\ndtype: bf16\nlayers: 8\ncaches:\n"
    path = tmp_path / "other.yaml"
    path.write_text(f"{text}  attention: {{kind: gqa, layers: layer < 6, heads: 8, dim: 128}}\n")
    done = CliRunner().invoke(main, ["check", str(path)])
    assert done.exit_code == 2
    assert "error[K006]" in done.output
    assert "warning[W004]: 2 of 8 layers store nothing" in done.output
    (tmp_path / "broken.yaml").write_text(text.replace("mini", "broken") + "  attention: {kind: gqa\n")
    both = CliRunner().invoke(main, ["check", str(path), str(tmp_path / "broken.yaml")]).output
    assert all(word in both for word in ("error[K006]", "error[Y001]", "warning[W004]"))


@pytest.mark.parametrize(
    ("side", "help"),
    [
        ("sglang", "with another engine engine=NAME,tp=4"),
        ("sglang:tp=2", "another engine is a key: engine=sglang,tp=…"),
    ],
)
def test_a_side_that_names_its_engine_wrongly_says_how(side: str, help: str) -> None:
    done = CliRunner().invoke(main, ["compile", "llama-3.1-8b", "--prefill", side, "--decode", "tp=1"])
    assert (done.exit_code, help in done.output) == (2, True)
