"""kvplan compile of a deployment: what is left over, and errors at their places."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.main import main
from kvplan.compiler import api
from kvplan.compiler.api import compile_pair
from kvplan.compiler.emit.emit import emit
from kvplan.deploy.plan_index import entries
from kvplan.deploy.revisions import MARKER
from kvplan.dsl.library import load
from kvplan.plan.types import Plan

SMALL, OTHER = "qwen3-0.6b", "llama-3.1-8b"


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def deployment(folder: Path, *models: str, decode: str = "[tp=2]") -> str:
    rows = "".join(f"  - {{models: [{model}], prefill: [tp=1], decode: {decode}}}\n" for model in models)
    (folder / "deploy.yaml").write_text(f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n{rows}")
    return str(folder / "deploy.yaml")


@pytest.fixture
def dropped(tmp_path: Path) -> tuple[str, Path]:
    """A deployment, and plans of it from before one of its models was dropped."""
    out = tmp_path / "plans"
    assert run("compile", deployment(tmp_path, SMALL, OTHER), "-o", str(out)).exit_code == 0
    return deployment(tmp_path, SMALL), out


def test_plans_of_a_dropped_model_fail_the_check(dropped: tuple[str, Path]) -> None:
    file, out = dropped
    said = run("compile", file, "-o", str(out), "--check", "--format", "json")
    answer = json.loads(said.stdout)
    assert (said.exit_code, answer["orphans"]) == (1, [str(out / "llama_3_1_8b/p_tp1__d_tp2.py")])
    assert answer["index"]["state"] == "stale"


def test_the_index_does_not_serve_them(dropped: tuple[str, Path]) -> None:
    file, out = dropped
    said = run("compile", file, "-o", str(out))
    assert (said.exit_code, [one.model for one in entries(out)]) == (0, [SMALL])
    assert (
        "llama_3_1_8b/p_tp1__d_tp2.py: no pair asks for this plan, so index.json leaves it out; --prune removes it"
        in said.stderr
    )
    assert run("compile", file, "-o", str(out), "--check").exit_code == 1


def test_pruning_removes_them(dropped: tuple[str, Path]) -> None:
    file, out = dropped
    said = run("compile", file, "-o", str(out), "--prune")
    assert (said.exit_code, said.stdout) == (0, f"removed {out / 'llama_3_1_8b/p_tp1__d_tp2.py'}\n")
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*")) == [
        "index.json",
        "qwen3_0_6b",
        "qwen3_0_6b/p_tp1__d_tp2.py",
    ]
    assert run("compile", file, "-o", str(out), "--check").exit_code == 0


def test_foreign_files_are_told_and_left_alone(dropped: tuple[str, Path]) -> None:
    file, out = dropped
    (out / "llama_3_1_8b/notes.py").write_text("# Emitted by kvplan from nothing\n")
    (out / "llama_3_1_8b/link.py").symlink_to(out / "qwen3_0_6b/p_tp1__d_tp2.py")
    (out / "README.md").write_text("plans\n")
    assert run("compile", file, "-o", str(out), "--prune").exit_code == 0
    left = {path.name for path in out.rglob("*") if path.is_file()}
    assert left == {"index.json", "p_tp1__d_tp2.py", "notes.py", "link.py", "README.md"}
    said = run("compile", file, "-o", str(out), "--check")
    assert (said.exit_code, said.stderr.count("kvplan did not write this file")) == (1, 2)


@pytest.mark.parametrize("words", [(), ("--prune",)])
def test_no_plan_is_dropped_or_removed_if_a_pair_is_refused(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Engines of a refused pair that run keep their plan: a slip in a deployment must not take it from them."""
    out = tmp_path / "plans"
    assert run("compile", deployment(tmp_path, SMALL, OTHER), "-o", str(out)).exit_code == 0
    before = entries(out)
    said = run("compile", deployment(tmp_path, SMALL, decode="[tp=3]"), "-o", str(out), *words)
    assert (said.exit_code, entries(out)) == (3, before)
    lines = [line for line in said.stderr.splitlines() if "refused pair: kept" in line]
    assert [line.partition(": ")[2] for line in lines] == 2 * [
        "it may be the old plan of a refused pair: kept, in index.json, too"
    ]
    assert all((out / one.path).is_file() for one in before)
    checked = run("compile", str(tmp_path / "deploy.yaml"), "-o", str(out), "--check", "--format", "json")
    assert (checked.exit_code, json.loads(checked.stdout)["index"]["state"]) == (3, "current")


def test_the_old_plan_of_a_named_pair_that_is_refused_is_known(tmp_path: Path) -> None:
    file = tmp_path / "deploy.yaml"
    for side in ("[tp=2]", "[tp=3]"):
        file.write_text(deployment_text(side))
        said = run("compile", str(file), "-o", str(tmp_path / "plans"))
    assert "chat.py: it is the old plan of a refused pair: kept, in index.json, too" in said.stderr


def deployment_text(decode: str) -> str:
    row = f"{{name: chat, models: [{SMALL}], prefill: [tp=1], decode: {decode}}}"
    return f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n  - {row}\n"


@pytest.mark.parametrize("words", [["--check"], ["--prefill", "tp=1", "--decode", "tp=1"]])
def test_pruning_is_of_deployments(tmp_path: Path, words: list[str]) -> None:
    what = deployment(tmp_path, SMALL) if words == ["--check"] else SMALL
    assert run("compile", what, "-o", str(tmp_path / "plans"), "--prune", *words).exit_code == 2


def test_every_plan_has_the_marker() -> None:
    text = compile_pair(load(), SMALL, "tp=1", "tp=2").text.encode()
    assert sum(line.startswith(MARKER) for line in text.splitlines()) == 1


@pytest.mark.parametrize(
    ("decode", "code"),
    [('["tp=2,order=hdn"]', "S009"), ("[tpp=2]", "S005"), ("[tp=2], options: {elect: x}", "S015")],
)
def test_errors_have_their_places(tmp_path: Path, decode: str, code: str) -> None:
    file = deployment(tmp_path, OTHER, decode=decode)
    said = run("compile", file, "-o", str(tmp_path / "plans"))
    assert said.exit_code == 2
    line = Path(file).read_text().splitlines()[4]
    place = said.stderr.partition(f"{file}:5:")[2].partition(":")[0]
    assert line[int(place) - 1 :].startswith(("tp=2", "tpp", "x"))
    assert f"error[{code}]" in said.stderr
    assert "^" in said.stderr


def test_refusals_have_their_places(tmp_path: Path) -> None:
    file = deployment(tmp_path, OTHER, decode="[tp=3]")
    said = run("compile", file, "-o", str(tmp_path / "plans"))
    column = Path(file).read_text().splitlines()[4].index("tp=3") + 1
    assert said.exit_code == 3
    assert f"{file}:5:{column}: error[C110]: refused {OTHER}: tp=1 -> tp=3: " in said.stderr
    assert "^^^^" in said.stderr


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """An emitter that spoils the text of one pair: tp=1 to tp=4."""

    def spoiled(plan: Plan, *words: Any, **more: Any) -> str:
        text = emit(plan, *words, **more)
        return text + "import os\n" if "tp=4" in plan.decode.key else text

    monkeypatch.setattr(api, "emit", spoiled)


@pytest.mark.usefixtures("faulty")
def test_a_fault_of_the_compiler_does_not_stop_other_pairs(tmp_path: Path) -> None:
    words = "compile", SMALL, "--prefill", "tp=1", "--decode", "tp=4/3/2", "-o", str(tmp_path)
    said = run(*words, "--format", "json")
    answer = json.loads(said.stdout)
    assert [one["code"] for one in answer["refused"]] == ["P023", "C110"]
    assert (said.exit_code, [one.path for one in entries(tmp_path)]) == (1, ["qwen3_0_6b/p_tp1__d_tp2.py"])


@pytest.mark.usefixtures("faulty")
def test_a_fault_of_the_compiler_is_a_cell_of_a_matrix() -> None:
    said = run("matrix", SMALL, "--prefill", "tp=1", "--decode", "tp=4/2", "--format", "json")
    first, second = json.loads(said.stdout)["cells"]
    assert (said.exit_code, first["refused"], second["descriptors"] > 0) == (1, "P023", True)


def test_a_check_shows_plans_before_their_index(tmp_path: Path) -> None:
    out = tmp_path / "plans"
    assert run("compile", deployment(tmp_path, SMALL), "-o", str(out)).exit_code == 0
    plan = out / "qwen3_0_6b" / "p_tp1__d_tp2.py"
    plan.write_text(plan.read_text().replace("Emitted", "Written"))
    shown = run("compile", deployment(tmp_path, SMALL, decode="[tp=2, tp=4]"), "-o", str(out), "--check").stdout
    assert 0 < shown.index("+Emitted") < shown.index(f"+++ {out / 'index.json'}")


def test_a_check_says_that_only_the_index_is_stale(tmp_path: Path) -> None:
    out, asked = tmp_path / "plans", ["compile", deployment(tmp_path, SMALL)]
    run(*asked, "-o", str(out))
    (out / "index.json").write_text((out / "index.json").read_text() + "\n")
    said = run(*asked, "-o", str(out), "--check")
    assert (said.exit_code, "1 plan: 0 stale, 1 up to date; index.json is stale" in said.output) == (1, True), (
        said.output
    )


def test_a_check_after_a_pair_is_removed_says_to_prune(tmp_path: Path) -> None:
    """Without it the plan stays, and the next check fails again."""
    out = tmp_path / "plans"
    assert run("compile", deployment(tmp_path, SMALL, decode="[tp=2, tp=4]"), "-o", str(out)).exit_code == 0
    asked = ("compile", deployment(tmp_path, SMALL), "-o", str(out))
    said = run(*asked, "--check")
    assert (said.exit_code, "the same command with --prune in place of --check" in said.stderr) == (1, True)
    assert run(*asked, "--prune").exit_code == run(*asked, "--check").exit_code == 0


@pytest.mark.parametrize(("folder", "why"), [("other", "has none of these plans"), ("absent", "is no directory")])
def test_a_check_of_another_directory_says_to_check_its_path(tmp_path: Path, folder: str, why: str) -> None:
    """The answer gives no advice to remove or move files of a directory that was not meant."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "own.py").write_text("x = 1\n")
    out = tmp_path / folder
    said = run("compile", deployment(tmp_path, SMALL), "-o", str(out), "--check")
    told = " ".join(said.stderr.split())
    assert (said.exit_code, f"{out} {why}: check the path after -o first." in told) == (1, True)
    assert "to bring them up to date" not in told
    assert "move it" not in told
    assert "--prune" not in told


def test_a_check_of_a_directory_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    said = run("compile", deployment(tmp_path, SMALL), "-o", str(tmp_path / "plan"), "--check")
    assert f"is no directory: did you mean '{tmp_path / 'plans'}'?" in " ".join(said.stderr.split())


@pytest.mark.full
def test_a_faster_strategy_is_a_hint_by_every_machine(tmp_path: Path) -> None:
    """A machine that nobody named decides nothing: one of them alone may gain little where another gains much."""
    pair = (OTHER, "--prefill", "tp=4", "--decode", "tp=2,order=nhd", "-o", str(tmp_path))
    [hint] = json.loads(run("compile", *pair, "--format", "json").stdout)["hints"]
    found = re.fullmatch(
        r"--strategy auto is predicted to be faster: llama_3_1_8b/p_tp4__d_tp2_lbnhc.py "
        r"up to ([\d.]+) times, depending on the machine; `kvplan advise` has the times",
        hint,
    )
    assert found
    advised = json.loads(run("advise", OTHER, *pair[1:5], "--format", "json").stdout)["machines"]
    times = [one["now"]["us"] / min(other["us"] for other in one["others"] if not other["changes"]) for one in advised]
    assert round(float(found[1])) == round(max(times))
    assert "is predicted to be faster" not in run("compile", *pair, "--check").stderr
    auto = json.loads(run("compile", *pair, "--strategy", "auto", "--format", "json").stdout)["hints"]
    assert [hint.partition(":")[0] for hint in auto] == ["no --machine is given"]


@pytest.mark.parametrize(
    ("side", "message", "help"),
    [
        ("block=24", "24 tokens of a block are no multiple of 16", "choose 16, 32, 48 or another multiple"),
        ("kv_dtype=fp8_ds_mla", "kv_dtype=fp8_ds_mla is a format that kind gqa does not have", "use bf16, f16, f32, "),
    ],
)
def test_a_value_that_cannot_be_names_those_that_can(side: str, message: str, help: str) -> None:
    said = run("compile", OTHER, "--prefill", side, "--decode", "tp=1")
    assert (message in said.stderr, help in said.stderr, "in play" in said.stderr) == (True, True, False), said.stderr


def test_a_machine_that_cannot_be_read_costs_no_more_than_its_part_of_a_hint(tmp_path: Path) -> None:
    (tmp_path / "ours.yaml").write_text("kvplan: 1\nmachine: ours\ntitle: Ours\n")
    pair = (OTHER, "--prefill", "tp=4", "--decode", "tp=2,order=nhd", "-o", str(tmp_path / "plans"))
    said = run("compile", *pair, "--layouts", str(tmp_path))
    assert (said.exit_code, "is predicted to be faster" in said.stderr) == (0, True), said.stderr
