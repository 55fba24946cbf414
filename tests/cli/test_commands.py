"""The commands as a user runs them: answers, exit codes, errors in the form that was asked for."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from tests.paths import ROOT

from kvplan.cli.codes import all_codes
from kvplan.cli.main import GROUPS, VERBS, main
from kvplan.compiler import api
from kvplan.dsl.library import load

PAIR = ["llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2"]


def run(*words: str, text: str | None = None) -> Result:
    return CliRunner().invoke(main, list(words), input=text)


def request() -> dict[str, object]:
    ids = [7, 3, 5, 0]
    return {
        "tokens": [5, 60],
        "prefill": {"attention": {"first": 0, "ids": ids}},
        "decode": {"attention": {"first": 0, "ids": ids[::-1]}},
    }


@pytest.mark.parametrize("verb", VERBS)
def test_help_says_of_a_command_what_its_own_help_says(verb: str) -> None:
    command = main.get_command(click.Context(main), verb)
    assert command is not None
    assert command.get_short_help_str(1000) == VERBS[verb]


def test_help_has_the_groups_in_order_and_fits_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    said = run("--help").stdout
    assert re.findall(r"^([A-Z][\w ]+):$", said, re.MULTILINE) == ["Options", *GROUPS]
    assert re.findall(r"^  ([a-z][a-z-]+)  ", said, re.MULTILINE) == list(VERBS)
    assert max(map(len, said.splitlines())) <= 80


def test_the_page_of_commands_lists_them_as_help_does() -> None:
    listed = (ROOT / "docs/cli.md").read_text().partition("    # Describe\n")[2].partition("\n`kvplan")[0]
    assert list(dict.fromkeys(re.findall(r"^    kvplan ([a-z-]+)", listed, re.MULTILINE))) == list(VERBS)
    assert re.findall(r"^    # (.*)$", listed, re.MULTILINE) == list(GROUPS)[1:]


@pytest.mark.parametrize("words", [[], ["compile"], ["store", "ls"], ["help"]])
def test_help_of_a_command_is_what_its_option_shows(words: list[str]) -> None:
    said = run("help", *words)
    assert (said.exit_code, said.stdout) == (0, run(*words, "--help").stdout)


def test_help_of_no_command_names_the_nearest() -> None:
    said = run("help", "compil")
    assert (said.exit_code, "No such command 'compil'. Did you mean 'compile'?" in said.stderr) == (2, True)


def test_version_is_what_its_option_shows() -> None:
    assert run("version").stdout == run("--version").stdout


def test_compile_writes_once_then_has_nothing_to_do(tmp_path: Path) -> None:
    first = run("compile", *PAIR, "-o", str(tmp_path))
    path = tmp_path / "llama_3_1_8b/p_tp4__d_tp2.py"
    assert (first.exit_code, path.is_file()) == (0, True)
    assert str(path) in first.stdout
    stamp = path.stat().st_mtime_ns
    assert run("compile", *PAIR, "-o", str(tmp_path)).exit_code == 0
    assert path.stat().st_mtime_ns == stamp


def test_check_fails_on_a_stale_plan_and_writes_nothing(tmp_path: Path) -> None:
    run("compile", *PAIR, "-o", str(tmp_path))
    path = tmp_path / "llama_3_1_8b/p_tp4__d_tp2.py"
    assert run("compile", *PAIR, "-o", str(tmp_path), "--check").exit_code == 0
    path.write_text(path.read_text().replace("tp=4", "tp=5", 1))
    stale = run("compile", *PAIR, "-o", str(tmp_path), "--check")
    assert stale.exit_code == 1
    assert "-" in stale.stdout
    assert "+" in stale.stdout
    assert "tp=5" in path.read_text()
    assert "the same command without --check" in stale.stderr


def test_products_are_compiled_and_refused_pairs_do_not_stop_them(tmp_path: Path) -> None:
    done = run("compile", "llama-3.1-8b", "--prefill", "tp=1/3", "--decode", "tp=2", "-o", str(tmp_path))
    assert done.exit_code == 3
    assert (tmp_path / "llama_3_1_8b/p_tp1__d_tp2.py").is_file()
    assert "refused" in done.stderr


@pytest.mark.parametrize("verb", ["compile", "simulate"])
@pytest.mark.parametrize("words", [["deploy.yaml"], ["qwen3-0.6b", "deploy.yaml"], ["gqa.yaml"]])
def test_nothing_done_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    entry = "  - {models: [qwen3-0.6b], prefill: [tp=1], decode: [tp=2]}"
    Path("deploy.yaml").write_text(f"kvplan: 1\ndeployment: deploy\nplans:\n{entry}\n")
    Path("gqa.yaml").write_text((ROOT / "layouts/kinds/gqa.yaml").read_text())
    done = run(verb, *words, "--prefill", "tp=1", "--decode", "tp=2")
    assert (done.exit_code, "error[S025]" in done.stderr) == (2, True)


def test_a_deployment_without_plans_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "deploy.yaml").write_text("kvplan: 1\ndeployment: deploy\nplans: []\n")
    assert run("compile", str(tmp_path / "deploy.yaml"), "-o", str(tmp_path / "plans")).exit_code == 2


@pytest.mark.parametrize("verb", ["compile", "explain", "trace", "simulate", "audit", "matrix"])
def test_help_says_what_a_side_is(verb: str) -> None:
    said = run(verb, "--help").stdout
    assert "A SIDE is keys with values" in said
    assert "  tp=4,order=nhd,block=32    engine options" in said
    assert max(map(len, said.splitlines())) <= 100


def test_explain_names_the_planes() -> None:
    model = run("explain", "llama-3.1-8b").stdout
    side = run("explain", "llama-3.1-8b", "--prefill", "tp=2").stdout
    assert "32 KV cache tensors, registered by layer: attention.0, attention.1 … attention.31" in model
    assert "32 KV cache tensors, registered by layer: attention.0, attention.1 … attention.31" in side
    said = json.loads(run("explain", "llama-3.1-8b", "--format", "json").stdout)
    assert said["planes"][0]["planes"] == [f"attention.{layer}" for layer in range(32)]


@pytest.mark.parametrize("what", ["vllm", "sglang", "custom"])
def test_explain_engine_has_its_options_and_their_docs(what: str) -> None:
    said, options = run("explain", what).stdout, load().engine(what).options
    assert [name for name in options if name not in said] == []
    assert [o.doc.split()[0] for o in options.values() if o.doc and o.doc.split()[0] not in said] == []


def test_a_side_cut_by_a_comma_compiles_nothing(tmp_path: Path) -> None:
    deploy = tmp_path / "deploy.yaml"
    entry = "  - {models: [qwen3-0.6b], prefill: [tp=1], decode: [tp=2,order=nhd]}"
    deploy.write_text(f"kvplan: 1\ndeployment: deploy\nplans:\n{entry}\n")
    done = run("compile", str(deploy), "-o", str(tmp_path / "plans"))
    assert (done.exit_code, "K018" in done.stderr) == (2, True)
    assert not (tmp_path / "plans").exists()


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["explain", "llama-3.1-8b", "--prefill", "tp=3", "--decode", "tp=1"], 3),
        (["explain", "nemotron-3-nano-30b", "--prefill", "tp=1,kernel_block=37", "--decode", "tp=1"], 3),
        (["explain", "llama-3.1-8b", "--prefill", "tpp=3", "--decode", "tp=1"], 2),
        (["explain", "llama-3.1-8b", "--prefill", "tp=x", "--decode", "tp=1"], 2),
        (["explain", "llama-3.1-8b", "--prefill", "tp=1,order=hdn", "--decode", "tp=1"], 2),
        (["explain", "lama-3.1-8b", "--prefill", "tp=1", "--decode", "tp=1"], 2),
        (["explain", "X999"], 2),
        (["explain", "nothing/here.py"], 2),
        (["compile", "llama-3.1-8b"], 2),
        (["diff", "nothing-here", "nor-here"], 2),
    ],
)
def test_exit_codes(words: list[str], code: int) -> None:
    assert run(*words).exit_code == code


@pytest.mark.parametrize("side", ["", " ", ","])
@pytest.mark.parametrize("command", ["compile", "explain", "simulate", "matrix"])
@pytest.mark.parametrize("which", ["--prefill", "--decode"])
def test_an_empty_side_is_as_good_as_missing(command: str, which: str, side: str, tmp_path: Path) -> None:
    words = {"--prefill": "tp=2", "--decode": "tp=1", which: side}
    given = [word for pair in words.items() for word in pair]
    said = run(command, "llama-3.1-8b", *given, "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "S023")
    assert which in json.loads(said.stdout)["error"]["message"]


def test_an_option_of_one_value_is_given_once() -> None:
    words = ("matrix", "llama-3.1-8b", "--prefill", "tp=1", "--prefill", "tp=2", "--decode", "tp=1", "--format", "json")
    said = run(*words)
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "S023")
    assert "--prefill is given 2 times" in json.loads(said.stdout)["error"]["message"]


@pytest.mark.parametrize("what", ["C110", "plan.py"])
@pytest.mark.parametrize("words", [["--prefill", "tp=2"], ["--decode", "tp=2"], ["--elect", "one"]])
def test_a_plan_or_a_code_has_no_sides_of_the_command(what: str, words: list[str]) -> None:
    said = run("explain", what, *words)
    assert (said.exit_code, " ".join(words) in said.stderr) == (2, True)


def test_an_unknown_option_is_said_before_any_pair(tmp_path: Path) -> None:
    pairs = ["llama-3.1-8b", "--prefill", "tp=3", "--decode", "tp=1"]
    said = run("compile", *pairs, "--elect", "foo", "-o", str(tmp_path), "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "S015")
    deploy = tmp_path / "deploy.yaml"
    entry = "{models: [llama-3.1-8b], prefill: [tp=1], decode: [tp=1]%s}"
    rows = [entry % "", entry % ", options: {elect: foo}"]
    deploy.write_text("kvplan: 1\ndeployment: deploy\ntitle: Ours\nplans:\n" + "".join(f"  - {row}\n" for row in rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "compile_pair", lambda *_: pytest.fail("a pair was compiled"))
        said = run("compile", str(deploy), "-o", str(tmp_path / "out"), "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "S015")


def test_refusal_as_json() -> None:
    said = run("explain", "llama-3.1-8b", "--prefill", "tp=3", "--decode", "tp=1", "--format", "json")
    error = json.loads(said.stdout)["error"]
    assert said.exit_code == 3
    assert {"code", "message", "help"} <= set(error)
    assert error["help"]


def test_trace_answers_json_alone(tmp_path: Path) -> None:
    said = run("trace", *PAIR, "--request", "-", "--format", "json", text=json.dumps(request()))
    answer = json.loads(said.stdout)
    assert (said.exit_code, set(answer)) == (0, {"copies", "prefill", "decode"})
    assert sum(copy["bytes"] for copy in answer["copies"]) == 55 * 8 * 256 * 2 * 32
    assert len(answer["decode"]["workers"]) == 2


def test_a_trace_says_its_tokens_and_which_side_is_left() -> None:
    first = run("trace", *PAIR, "--tokens", "5:60").stdout.partition("\n")[0]
    assert first == "tokens 5:60, prefill -> decode, offsets in bytes"


def test_a_word_that_is_an_option_too_has_its_values() -> None:
    said = run("explain", "order").stdout
    assert ("vLLM's KV cache layout" in said, "nhd for LBNHC" in said) == (True, True)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"tokens": [0, 5]}', '{"tokens": [5, 0], "prefill": {}, "decode": {}}']
)
def test_bad_requests(text: str) -> None:
    said = run("trace", *PAIR, "--request", "-", "--format", "json", text=text)
    assert said.exit_code == 2
    assert json.loads(said.stdout)["error"]["code"]


def test_simulate_says_what_was_compared() -> None:
    said = run("simulate", *PAIR, "--tokens", "5:60")
    assert said.exit_code == 0
    assert f"{55 * 8 * 256 * 2 * 32:,} needed bytes" in said.stdout
    assert run("simulate", *PAIR, "--tokens", "60:5").exit_code == 2


def test_simulate_takes_a_plan_as_trace_does(tmp_path: Path) -> None:
    assert run("compile", *PAIR, "-o", str(tmp_path)).exit_code == 0
    plan = str(next(tmp_path.glob("*/*.py")))
    tokens = ("--tokens", "5:60")
    assert run("simulate", plan, *tokens).stdout == run("simulate", *PAIR, *tokens).stdout
    for words, text in (([plan, *PAIR[1:]], "a plan has its own sides"), (PAIR[:1], "or the path of a plan")):
        said = run("simulate", *words)
        assert (said.exit_code, text in " ".join(said.stderr.split())) == (2, True)


def test_check_says_what_checks_a_plan(tmp_path: Path) -> None:
    assert run("compile", *PAIR, "-o", str(tmp_path)).exit_code == 0
    said = run("check", str(next(tmp_path.glob("*/*.py"))))
    told = " ".join(said.output.split())
    assert (said.exit_code, f"kvplan compile DEPLOYMENT -o {tmp_path} --check" in told) == (2, True)


def test_simulate_says_which_tokens(tmp_path: Path) -> None:
    pair = ["gpt-oss-20b", "--prefill", "tp=2", "--decode", "tp=1"]
    answer = json.loads(run("simulate", *pair, "--format", "json").stdout)
    (said,) = answer.values()
    first, end = said["tokens"]
    assert (said["right"], end - first > 127) == (True, True)
    assert f"\n  tokens {first}:{end}: OK: " in run("simulate", *pair).stdout
    assert "512 tokens" in " ".join(run("simulate", "--help").stdout.split())


@pytest.mark.full
def test_simulate_names_windows_that_its_tokens_do_not_reach(tmp_path: Path) -> None:
    pair = ["mistral-small-3.1-24b", "--prefill", "tp=2", "--decode", "tp=1"]
    assert "leaves out none" not in run("simulate", *pair).stdout
    pair = ["gemma-3-27b", "--prefill", "tp=2", "--decode", "tp=1"]
    said = run("simulate", *pair).stdout
    assert "the window or chunk of sliding leaves out none of these tokens: --tokens 0:" in said
    tokens = said.partition("these tokens: --tokens ")[2].split()[0]
    assert "leaves out none" not in run("simulate", *pair, "--tokens", tokens).stdout
    (found,) = json.loads(run("simulate", *pair, "--tokens", "0:64", "--format", "json").stdout).values()
    assert found["not_reached"]


def test_simulate_on_too_small_a_pool_is_bad_input() -> None:
    said = run("simulate", "qwen3-0.6b", "--prefill", "tp=1", "--decode", "engine=custom,blocks=2", "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "Q021")


def test_diff_by_meaning(tmp_path: Path) -> None:
    for name, side in (("old", "tp=2"), ("new", "tp=2,order=nhd")):
        run("compile", *PAIR[:4], side, "-o", str(tmp_path / name))
    old, new = sorted((tmp_path / "old").rglob("*.py"))[0], sorted((tmp_path / "new").rglob("*.py"))[0]
    assert run("diff", str(old), str(old)).exit_code == 0
    said = run("diff", str(old), str(new))
    assert said.exit_code == 1
    for word in ("AXIS_ORDER", "SPANS", "COST", "Only decode changes"):
        assert word in said.stdout
    assert "PLANS" not in said.stdout
    assert json.loads(run("diff", str(tmp_path / "old"), str(tmp_path / "new"), "--format", "json").stdout)


def test_diff_against_a_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@t"]
    run("compile", *PAIR)
    for words in (["init", "-q"], ["add", "plans"], ["commit", "-qm", "plans"]):
        subprocess.run([*git, *words], check=True, capture_output=True)
    assert run("diff", "HEAD", "plans").exit_code == 0
    run("compile", *PAIR[:4], "tp=1")
    assert run("diff", "HEAD", "plans").exit_code == 1
    assert run("diff", "HEAD", "plans", "--cost-growth", "1000%").exit_code == 0, "a new plan fails only by its cost"
    assert run("diff", "HEAD", "plans", "--fail-on", "PAIR_NEW").exit_code == 1
    assert run("diff", "HEAD", "plans/llama_3_1_8b/p_tp4__d_tp2.py").exit_code == 0
    assert run("diff", "no-such-revision", "plans").exit_code == 2


def test_explain_shows_pages_groups_and_what_moves() -> None:
    said = run("explain", *PAIR)
    assert said.exit_code == 0, said.output
    for word in (
        "attention",
        "page",
        "head 0",
        "WHAT MOVES",
        "decode 0 <- prefill 1",
        "prefill workers 0-3 wait for 1 notification",
        "Proved",
    ):
        assert word in said.stdout


@pytest.mark.parametrize(("side", "ratio"), [("tp=4", "131 x 16 tokens"), ("tp=1", "261 x 16 tokens")])
def test_explain_one_side_shows_the_derived_ratio(side: str, ratio: str) -> None:
    said = run("explain", "nemotron-3-nano-30b", "--decode", f"{side},kv_dtype=fp8,kernel_block=16")
    assert ratio in said.stdout


def test_explain_a_plan_on_disk_says_the_same(tmp_path: Path) -> None:
    run("compile", *PAIR, "-o", str(tmp_path))
    path = str(tmp_path / "llama_3_1_8b/p_tp4__d_tp2.py")
    (disk, fresh) = (json.loads(run("explain", *words, "--format", "json").stdout) for words in ([path], PAIR))
    assert {**disk, "path": "", "written": False} == {**fresh, "path": ""}
    assert disk["written"]


def test_explain_model_and_list() -> None:
    assert "23 layers: 0, 2, 4" in run("explain", "nemotron-3-nano-30b").stdout
    known = json.loads(run("list", "--format", "json").stdout)
    assert {"models", "kinds", "engines", "notes", "machines"} == set(known)
    assert "llama-3.1-8b" in known["models"]
    for name in known["models"]:
        assert run("explain", name).exit_code == 0


def test_every_code_has_a_long_text() -> None:
    for code in all_codes():
        assert run("explain", code).exit_code == 0, code


def test_check_reports_and_exits(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("kvplan: 1\nmodel: bad\nlayer: 3\n")
    said = run("check", str(bad))
    assert said.exit_code == 2
    assert f"{bad}:3:1" in said.output
    assert json.loads(run("check", str(bad), "--format", "json").stdout)
    assert run("check", str(bad), "--format", "github").stdout.startswith("::error ")


@pytest.mark.parametrize("named", ["bad.yaml", "bad"])
def test_check_of_a_deployment_says_what_is_wrong_with_its_models(tmp_path: Path, named: str) -> None:
    layouts, path = tmp_path / "models", tmp_path / "dep.yaml"
    layouts.mkdir()
    bad = (tmp_path if named.endswith(".yaml") else layouts) / "bad.yaml"
    bad.write_text("kvplan: 1\nmodel: bad\ntitle: Bad\ndtype: bf17\nlayers: 1\ncaches: {}\n")
    pair = f"{{models: [qwen3-0.6b, {named}], prefill: tp=1, decode: tp=2}}"
    path.write_text(f"kvplan: 1\ndeployment: dep\nplans: [{pair}]\n")
    said = run("check", str(path), "--layouts", str(layouts))
    assert (said.exit_code, said.output.count("'bf17' is not an element type of models")) == (2, 1), said.output


def test_ctrl_c_is_130_and_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvplan.deploy.jobs.of_models", interrupted)
    done = run("simulate", *PAIR)
    assert (done.exit_code, done.stderr) == (130, "interrupted\n")


# A shell's background jobs ignore Ctrl-C, and their children do, unless they say otherwise.
WORKERS = """
import signal
import sys
import time
from kvplan.demo.processes import Processes

def work(pipe):
    pipe.say("ready")
    pipe.listen(60)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Processes() as workers:
        until = time.monotonic() + 60
        try:
            members = [workers.start(f"worker {n}", work) for n in range(2)]
            print([member.hear(until) for member in members], flush=True)
            members[0].hear(until)
        except KeyboardInterrupt:
            sys.exit(130)
"""


def test_workers_leave_ctrl_c_to_their_parent(tmp_path: Path) -> None:
    """A terminal sends it to all of them; the parent alone says something."""
    (tmp_path / "workers.py").write_text(WORKERS)
    words = [sys.executable, str(tmp_path / "workers.py")]
    with subprocess.Popen(words, stdout=-1, stderr=-1, text=True, start_new_session=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "['ready', 'ready']\n"
        os.killpg(parent.pid, signal.SIGINT)
        _, errors = parent.communicate(timeout=60)
    assert (parent.returncode, errors) == (130, "")


def test_a_directory_of_plans_is_neither_checked_nor_explained(tmp_path: Path) -> None:
    """The message names what does it."""
    for number in range(1, 8):
        run("compile", "qwen3-0.6b", "--prefill", f"tp={number}", "--decode", f"tp={number}", "-o", str(tmp_path))
    said = run("check", str(tmp_path))
    assert (said.exit_code, f"kvplan compile DEPLOYMENT -o {tmp_path} --check" in said.output) == (2, True)
    said = run("explain", str(tmp_path), "--format", "json")
    error = json.loads(said.stdout)["error"]
    assert (said.exit_code, error["code"], "p_tp1__d_tp1.py" in said.stdout) == (2, "S021", True)
