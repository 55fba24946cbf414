"""kvplan diff as a reviewer and as a pipeline meet it: what it reads, what fails, and every form of its answer."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from kvplan.cli import codes
from kvplan.cli.main import main
from kvplan.compiler.api import Compiled, compile_bound
from kvplan.dsl.library import load
from kvplan.review.reports import FORMATS
from kvplan.review.rules import MEANINGS, RULES, VERDICTS, Category, RolloutVerdict
from kvplan.review.text import WIDTH

MINI = """kvplan: 1
model: mini
title: Mini
dtype: bf16
query_heads: 32
layers: 8
caches:
  attention: {kind: gqa, layers: layer % 4 == 3, heads: 8, dim: 128}
  mamba: {kind: mamba2, layers: layer % 4 != 3, heads: 64, head_dim: 64, state: 128, groups: 8, conv: 4}
"""
PAIRS = [f"prefill: [tp={p}], decode: [tp={d}]" for p in (2, 4) for d in (1, 2)]


MADE: dict[str, Compiled] = {}
# Imported before the function is replaced: they would keep the replacement, for the tests of other files, too.
for user in ("compiler.explain.advise", "compiler.explain.matrix", "doctor.examine"):
    import_module(f"kvplan.{user}")


@pytest.fixture(autouse=True)
def _each_plan_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly every test compares with the plans of the same sides; all that a plan is made of is in the key."""

    def once(*given: object, **named: object) -> Compiled:
        key = repr((given, named))
        if key not in MADE:
            MADE[key] = compile_bound(*given, **named)  # type: ignore[arg-type]
        return MADE[key]

    monkeypatch.setattr("kvplan.compiler.api.compile_bound", once)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


def deployment(*rows: str) -> None:
    entries = "".join(f"  - {{models: [mine/mini.yaml], {row}}}\n" for row in rows)
    Path("deploy.yaml").write_text(f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n{entries}")


def compiled(out: str = "plans") -> None:
    done = run("compile", "deploy.yaml", "-o", out, "--prune")
    assert done.exit_code == 0, done.output


def git(*words: str) -> None:
    subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and two pairs, committed with their plans."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("committed")
        patch.chdir(folder)
        Path("mine").mkdir()
        Path("mine/mini.yaml").write_text(MINI)
        deployment("prefill: [tp=2], decode: [tp=1]", "name: chat, prefill: [tp=2], decode: [tp=2]")
        compiled()
        git("init", "-q")
        git("add", ".")
        git("commit", "-qm", "plans")
        return folder


@pytest.fixture
def repository(committed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, where the test is."""
    shutil.copytree(committed, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edit(old: str, new: str, file: str = "mine/mini.yaml") -> None:
    text = Path(file).read_text()
    assert old in text
    Path(file).write_text(text.replace(old, new))


def rules(said: Result) -> set[str]:
    return {change["rule"] for plan in json.loads(said.stdout)["plans"] for change in plan["changes"]}


def test_one_number_in_a_layout(repository: Path) -> None:
    """Its cause in the layout's words, its effects once, the verdict; the same as from plans that are written."""
    edit("state: 128", "state: 64")
    said = run("diff", "git:HEAD:plans", "deploy.yaml")
    assert said.exit_code == 1
    for line in (
        "2 plans change.",
        "Roll out both sides of 2 pairs together: old and new engines refuse each other.",
        "  mine/mini.yaml: mamba.state: 128 → 64",
        "  EXTENT          mamba.b, .c, .ssm axis state: 128 → 64 (−50 %)  [both sides]",
        "  mini: 1 chat, 2 p_tp2__d_tp1",
    ):
        assert line in said.stdout.splitlines()
    compiled()
    # Deployments name their layouts; where only plans are compared nobody says where these lie.
    again = run("diff", "git:HEAD", "plans", "--layouts", "mine")
    assert again.stdout == said.stdout


def test_nothing_changes(repository: Path) -> None:
    for words in (["git:HEAD", "plans"], ["HEAD", "plans"], ["plans", "deploy.yaml"], ["plans", "git:HEAD:plans"]):
        said = run("diff", *words)
        assert (said.exit_code, said.stdout) == (0, "No plan changes; 2 stay as they are.\n")
    single = "plans/mini/chat.py"
    assert run("diff", "git:HEAD", single).exit_code == 0
    assert run("diff", f"git:HEAD:{single}", single).exit_code == 0


@pytest.mark.parametrize("word", ["git:no-such", "git:HEAD:nowhere", "no-such", "git:", "git:-x:plans", "nowhere"])
def test_what_is_not_there(repository: Path, word: str) -> None:
    said = run("diff", word, "plans")
    assert (said.exit_code, "error[S021]" in said.stderr) == (2, True)


@pytest.mark.parametrize("words", [["empty", "plans"], ["plans", "empty"], ["empty", "empty"]])
def test_a_directory_without_plans_is_none(repository: Path, words: list[str]) -> None:
    """A path that is wrong must not pass a pipeline, as if all plans were new."""
    Path("empty/below").mkdir(parents=True)
    said = run("diff", *words, "--fail-on", "LAYOUT")
    assert (said.exit_code, "error[S021]: the directory 'empty' has no plans" in said.stderr) == (2, True)


def test_a_directory_that_cannot_be_read_is_an_error(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def locked(path: str) -> Any:
        if Path(path).name == "mini":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return usual(path)

    usual = os.scandir
    monkeypatch.setattr(os, "scandir", locked)
    said = run("diff", "git:HEAD", "plans")
    assert (said.exit_code, "error[S035]" in said.stderr, "Permission denied" in said.stderr) == (2, True, True)


def test_a_named_pair_stays_one_whatever_changes(repository: Path) -> None:
    edit("decode: [tp=2]", 'decode: ["tp=4,order=nhd"]', "deploy.yaml")
    said = run("diff", "git:HEAD:plans", "deploy.yaml", "--format", "json")
    answer = json.loads(said.stdout)
    assert answer["summary"] == {"changed": 1, "new": 0, "gone": 0, "renamed": 0, "same": 1}
    assert answer["plans"][0]["name"] == "mini/chat"
    assert {"OPTION", "WORKERS", "AXIS_ORDER"} <= rules(said)


ROLLED_OUT = ("prefill: [tp=2], decode: [tp=1]", 'name: chat, prefill: [tp=2], decode: ["tp=2,order=nhd"]')


@pytest.fixture
def rollout(repository: Path) -> tuple[str, str, str]:
    """Plans of before, of now, and of both: the new pair has another name until the old one goes."""
    kept, named = ROLLED_OUT
    deployment(kept, named)
    compiled("now")
    deployment(kept, "name: chat, prefill: [tp=2], decode: [tp=2]", named.replace("chat", "chat-nhd"))
    compiled("both")
    return "plans", "now", "both"


def test_a_rollout_by_two_changes_only_adds_and_then_only_removes(rollout: tuple[str, str, str]) -> None:
    """No plan that both directories hold counts as changed or removed, whatever its file is called."""
    before, now, both = rollout
    said = run("diff", before, both)
    assert said.stdout.startswith("1 plan is new; 2 stay as they are.\n\nPlans are only added: engines that run keep")
    said = run("diff", both, now)
    assert said.stdout.startswith("1 plan is removed, 1 is renamed; 1 stays as it is.\n\n1 pair is removed, and its")
    assert ("RENAMED\n  mini/chat (was chat_nhd)" in said.stdout, "CAUSE" in said.stdout) == (True, False)
    assert ("COST" in said.stdout, "Fails in 1 pair: PAIR (" in said.stdout) == (False, True)
    for form in ("text", "markdown"):
        told = run("diff", both, now, "--format", form).stdout
        assert re.search(r"(?i)removed:?\s+[-` ]*mini/chat, its old plan [0-9a-f]{8}", told)


GROWTH = re.compile(r"DESCRIPTORS\W+attention per decode worker and 1,024 tokens: 14 → 8,192 descriptors \(× 585\)")


def test_a_new_pair_costs_as_much_as_it_would_in_place_of_the_nearest(rollout: tuple[str, str, str]) -> None:
    """Otherwise a change in two steps would go around the comparison of costs."""
    before, now, both = rollout
    said, in_place = (run("diff", before, new) for new in (both, now))
    assert (said.exit_code, "Fails in 1 pair: COST (" in said.stdout) == (1, True)
    assert "NEW\n  1 mini/chat_nhd, its COST compared with mini/chat\n" in said.stdout
    assert GROWTH.search(said.stdout)
    cost = re.compile(r"COST of the busiest.*?(?=\n\n)", re.DOTALL)
    assert cost.findall(said.stdout) == cost.findall(in_place.stdout)
    assert run("diff", before, both, "--cost-growth", "100000%").exit_code == 0
    accept(*(entry.replace("WHY", "rare") for entry in accepting(said)))
    assert run("diff", before, both).exit_code == 0


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_says_what_a_new_pair_is_compared_with(rollout: tuple[str, str, str], form: str) -> None:
    before, _, both = rollout
    said = run("diff", before, both, "--format", form).stdout
    if form == "json":
        [plan] = json.loads(said)["plans"]
        assert (plan["before"], plan["compared_with"], plan["categories"]) == (None, "mini/chat.py", ["COST"])
    else:
        assert re.search("compared with `?mini/chat", said)
        assert GROWTH.search(said)


def test_a_new_pair_is_compared_with_the_pair_whose_place_it_takes(repository: Path) -> None:
    """If two pairs are as near, the removed one counts."""
    kept = "prefill: [tp=2], decode: [tp=1]"
    deployment(kept, "name: zeta, prefill: [tp=2], decode: [tp=2]")
    compiled()
    deployment(kept, "prefill: [tp=4], decode: [tp=1]", "prefill: [tp=4], decode: [tp=4]")
    new = run("diff", "plans", "deploy.yaml").stdout.partition("NEW\n")[2].splitlines()
    assert [line.split()[-1] for line in new[:2]] == ["mini/p_tp2__d_tp1", "mini/zeta"]


def test_a_strategy_says_for_which_machine_it_was_chosen(repository: Path) -> None:
    """Nobody who reviews sees the hint of `compile`."""
    deployment("prefill: [tp=2], decode: [tp=1], options: {strategy: auto}")
    said = run("diff", "git:HEAD:plans", "deploy.yaml").stdout
    assert f"strategy auto on {load().default_machine}, the default machine" in " ".join(said.split())


def test_a_second_name_of_a_plan_is_no_plan_more(repository: Path) -> None:
    deployment(*PAIRS)
    compiled()
    deployment(*PAIRS, "name: again, prefill: [tp=2], decode: [tp=2]")
    assert "NEW\n  mini/again, a second name of the plan mini/" in run("diff", "plans", "deploy.yaml").stdout


def test_a_new_pair_of_another_model_is_compared_with_none(repository: Path) -> None:
    Path("mine/maxi.yaml").write_text(MINI.replace("mini", "maxi").replace("state: 128", "state: 64"))
    more = "  - {models: [mine/maxi.yaml], prefill: [tp=2], decode: [tp=2]}\n"
    Path("deploy.yaml").write_text(Path("deploy.yaml").read_text() + more)
    said = run("diff", "plans", "deploy.yaml")
    assert (said.exit_code, "COST" in said.stdout, "NEW\n  maxi/p_tp2__d_tp2\n" in said.stdout) == (0, False, True)


def test_two_plans_of_one_index_need_not_be_put_into_one(rollout: tuple[str, str, str]) -> None:
    _, now, both = rollout
    old, new = f"{both}/mini/chat.py", f"{both}/mini/chat_nhd.py"
    said = run("diff", old, new).stdout
    assert "Only decode changes.\n  1. While prefill keeps running, restart decode" in said
    assert "\n  1. Put both plans into one index" in run("diff", old, f"{now}/mini/chat.py").stdout
    Path(both, "index.json").unlink()
    assert "\n  1. Put both plans into one index" in run("diff", old, new).stdout


def test_the_first_step_says_whom_new_plans_alone_cut_off(rollout: tuple[str, str, str]) -> None:
    """A merge in place leaves only the plans of NEW in the index, without a word."""
    before, now, _ = rollout
    said = " ".join(run("diff", before, now).stdout.split())
    assert "1. Put both plans into one index, because NEW alone cuts off old decode engines: `kvplan push`" in said


def test_a_rename_is_no_change_and_has_no_cause(repository: Path) -> None:
    """A push and a pull rename plans by their content."""
    shutil.copytree("plans", "pulled")
    index = json.loads(Path("pulled/index.json").read_text())
    for one in index["plans"]:
        Path("pulled", one["path"]).rename(Path("pulled", f"{one['sha256']}.py"))
        one["path"] = f"{one['sha256']}.py"
    Path("pulled/index.json").write_text(json.dumps(index))
    for words in (["plans", "pulled"], ["pulled", "plans"]):
        said = run("diff", *words, "--fail-on", "LAYOUT", "--fail-on", "PAIR")
        first = "2 plans are renamed.\n\nPlans are only renamed: engines find them by digest."
        assert (said.exit_code, said.stdout.startswith(first), "CAUSE" in said.stdout) == (0, True, False)


def test_a_renamed_model_says_who_uses_its_name(repository: Path) -> None:
    """Engines do not compare it; their configuration, a store and a fleet do."""
    Path("mine/nano.yaml").write_text(MINI.replace("mini", "nano"))
    edit("mini", "nano", "deploy.yaml")
    said = " ".join(run("diff", "git:HEAD:plans", "deploy.yaml").stdout.split())
    for told in (said, " ".join(run("explain", "MODEL_NAME").stdout.split())):
        assert "give `layout` in their configuration the model's new name" in told
        assert "A store finds no caches under it, and `kvplan fleet` pairs only engines of one name." in told
    assert "old and new engines can talk. Before engines restart" in said


def test_a_copy_that_goes_leaves_its_plan(repository: Path) -> None:
    same = "prefill: [tp=2], decode: [tp=2]"
    deployment(f"name: chat, {same}", f"name: copy, {same}")
    compiled()
    deployment(f"name: chat, {same}")
    said = run("diff", "plans", "deploy.yaml", "--fail-on", "PAIR")
    assert (said.exit_code, "mini/chat (was copy)" in said.stdout) == (0, True)


@pytest.mark.parametrize(
    ("typo", "code"),
    [
        ('decode: ["tp=2,order=hdn"]', "S009"),
        ("decode: [tpp=2]", "S005"),
        ("decode: [tp=2], options: {elect: x}", "S015"),
    ],
)
def test_an_error_in_a_deployment_has_its_place(repository: Path, typo: str, code: str) -> None:
    """The place is the one that `kvplan compile` prints: with many pairs one would search."""
    edit("decode: [tp=2]", typo, "deploy.yaml")
    for old in ("plans", "git:HEAD:plans"):
        said = run("diff", old, "deploy.yaml")
        assert (said.exit_code, f": error[{code}]" in said.stderr, "^" in said.stderr) == (2, True, True)
        assert said.stderr.startswith("deploy.yaml:6:")
    assert run("diff", old, "deploy.yaml", "--format", "github").stderr.startswith("::error file=deploy.yaml,line=6,")
    [fault] = json.loads(run("diff", old, "deploy.yaml", "--format", "json").stdout)["error"]["diagnostics"]
    assert (fault["path"], fault["line"]) == ("deploy.yaml", 6)
    # An error elsewhere is not hidden.
    assert "error[S021]" in run("diff", "no-such", "deploy.yaml").stderr


@pytest.mark.parametrize("turned", [False, True])
def test_one_plan_is_not_compared_with_several(repository: Path, turned: bool) -> None:
    """All others would count as removed, or as new."""
    words = ["plans", "plans/mini/chat.py"]
    said = run("diff", *(words[::-1] if turned else words))
    assert (said.exit_code, "'plans' is a directory of plans, and plans/mini/chat.py is one plan" in said.stderr) == (
        2,
        True,
    )
    assert "name it: plans/mini/chat.py, plans/mini/p_tp2__d_tp1.py" in said.stderr
    said = run("diff", "deploy.yaml", "plans/mini/chat.py")
    assert "deploy.yaml has 2 plans, and plans/mini/chat.py is one plan" in said.stderr


def test_plans_of_two_models_are_not_a_rollout(repository: Path) -> None:
    assert run("compile", "qwen3-0.6b", "--prefill", "tp=2", "--decode", "tp=2", "-o", "other").exit_code == 0
    said = run("diff", "plans/mini/chat.py", "other/qwen3_0_6b/p_tp2__d_tp2.py")
    assert "These are plans of two models, mini and qwen3-0.6b" in said.stdout
    assert "Roll out" not in said.stdout
    assert (" B → none" in said.stdout, "→ none B" in said.stdout) == (True, False)


def test_pairs_without_a_plan_come_before_texts(repository: Path) -> None:
    edit("title: Mini", "title: Mine")
    deployment("name: chat, prefill: [tp=2], decode: [tp=2]")
    said = run("diff", "plans", "deploy.yaml").stdout
    assert said.index("1 pair is removed, and its engines") < said.index("Only the text changes")


def test_a_verdict_leaves_names_as_they_are(repository: Path) -> None:
    edit("prefill: [tp=2], decode: [tp=2]", "prefill: [tp=4], decode: [tp=2]", "deploy.yaml")
    edit("decode: [tp=1]", "decode: ['tp=1,block=32']", "deploy.yaml")
    compiled("now")
    for folder in ("plans", "now"):
        Path(folder, "index.json").unlink()
        Path(folder, "mini").rename(Path(folder, "Mini"))
    assert "Only prefill changes in Mini/chat; only decode changes in Mini/" in run("diff", "plans", "now").stdout


def test_every_form_has_the_same_verdict_and_categories(repository: Path) -> None:
    edit("decode: [tp=2]", 'decode: ["tp=4,order=nhd"]', "deploy.yaml")
    said = {form: run("diff", "plans", "deploy.yaml", "--format", form).stdout for form in FORMATS}
    answer = json.loads(said["json"])
    [plan] = answer["plans"]
    categories = ", ".join(plan["categories"])
    assert categories == "LAYOUT, PLAN, COST"
    assert answer["sentence"] == plan["sentence"]
    case = ElementTree.fromstring(said["junit"]).find(".//failure")
    assert case is not None
    assert (case.get("message"), case.get("type")) == (plan["sentence"], categories)
    assert answer["sentence"] in said["github"].replace("%0A", " ")
    assert f"title={categories.replace(',', '%2C')}::" in said["github"]
    for form in ("text", "markdown"):
        assert "Fails in 1 pair: " + "; ".join(
            f"{one} ({MEANINGS[Category(one)].brief})" for one in categories.split(", ")
        ) in " ".join(said[form].split())
        assert answer["sentence"] in " ".join(said[form].replace("**", "").split())
    assert "restart decode with --tensor-parallel-size 4 and VLLM_KV_CACHE_LAYOUT=LBNHC" in answer["sentence"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("git:no-such:plans", "there is no git revision 'no-such' here"),
        ("git:HEAD~9", "there is no git revision 'HEAD~9' here\n   = give a plan, a directory"),
        ("git:HEAD:nowhere", "git revision 'HEAD' has no plans at 'nowhere' of the current folder"),
        ("git:HEAD:far/away/plans", "git revision 'HEAD' has no plans at 'far/away/plans' of the current folder"),
        ("no-such", "there is no plan, directory or git revision 'no-such' here"),
    ],
)
def test_an_error_says_what_is_not_there(repository: Path, word: str, said: str) -> None:
    assert f"error[S021]: {said}" in run("diff", word, "plans").stderr


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("plan", "plans"),
        ("plans/mini/cha.py", "plans/mini/chat.py"),
        ("plan/mini/chat.py", "plans/mini/chat.py"),
        ("deploi.yaml", "deploy.yaml"),
        ("stabel", "stable"),
        ("git:stabel:plans", "git:stable:plans"),
        ("git:HEAD:plan", "git:HEAD:plans"),
        ("git:HEAD:plans/mimi", "git:HEAD:plans/mini"),
        ("gti:HEAD", "git:HEAD"),
    ],
)
def test_an_error_names_the_nearest_plan_folder_or_revision(repository: Path, word: str, near: str) -> None:
    git("tag", "stable")
    said = run("diff", word, "plans")
    assert (said.exit_code, f"did you mean '{near}'?" in said.stderr) == (2, True), said.stderr


@pytest.mark.parametrize("word", ["git:HEAD:deploy.yaml", "git:HEAD:mine", "git:HEAD"])
def test_an_error_does_not_suggest_what_was_typed(repository: Path, word: str) -> None:
    other = "deploy.yaml" if word == "git:HEAD" else "plans"
    said = run("diff", word, other)
    assert (said.exit_code, "error[S021]" in said.stderr, "did you mean" in said.stderr) == (2, True, False)
    deployed = "a deployment file of a revision is not compiled: give the directory of its plans"
    assert (deployed in " ".join(said.stderr.split())) == (word != "git:HEAD:mine")


@pytest.mark.parametrize("words", [["diff", "old.py", "new.py"], ["explain", "new.py"]])
def test_a_plan_with_an_edited_key_is_refused(repository: Path, words: list[str]) -> None:
    """Its digest, which covers no key, stays: it would pass as a change of text."""
    for name in ("old.py", "new.py"):
        shutil.copy("plans/mini/p_tp2__d_tp1.py", name)
    edit('key="tp=1"', 'key="tp=1,block=32"', "new.py")
    said = run(*words)
    told = "error[R001]: new.py: its header names other sides than tp=2 -> tp=1,block=32: it was edited"
    assert (said.exit_code, told in " ".join(said.stderr.split())) == (2, True), said.output


def test_a_comment_above_the_header_changes_nothing(repository: Path) -> None:
    plan = Path("plans/mini/p_tp2__d_tp1.py").read_text()
    for name, text in (("old.py", plan), ("new.py", f"# SPDX-License-Identifier: Apache-2.0\n\n{plan}")):
        Path(name).write_text(text)
    said = run("diff", "old.py", "new.py")
    assert (said.exit_code, "Only the text changes" in said.stdout) == (0, True)


def test_the_commands_of_an_answer_find_the_layouts(repository: Path) -> None:
    Path("my files").mkdir()
    Path("mine/mini.yaml").rename("my files/mini.yaml")
    edit("models: [mine/mini.yaml]", "models: [mini]", "deploy.yaml")
    edit("prefill: [tp=2], decode: [tp=1]", 'prefill: [tp=2], decode: ["tp=1,block=4192"]', "deploy.yaml")
    said = " ".join(run("diff", "plans", "deploy.yaml", "--layouts", "my files").stdout.split())
    found = re.findall(r"kvplan (advise .*? --layouts 'my files')", said)
    # `explain` takes the same words, and is fast.
    assert [run("explain", *shlex.split(one)[1:]).exit_code for one in found] == [0, 0], said


def test_a_folder_that_is_gone_with_those_above_is_read_at_a_revision(repository: Path) -> None:
    shutil.copytree("plans", "far/away/plans")
    git("add", ".")
    git("commit", "-qm", "away")
    shutil.rmtree("far")
    assert run("diff", "git:HEAD:far/away/plans", "plans").stdout == "No plan changes; 2 stay as they are.\n"


def test_new_and_gone(repository: Path) -> None:
    deployment("prefill: [tp=2], decode: [tp=1]", "prefill: [tp=4], decode: [tp=1]", "prefill: [tp=4], decode: [tp=4]")
    said = run("diff", "git:HEAD:plans", "deploy.yaml")
    assert said.stdout.startswith("2 plans are new, 1 is removed; 1 stays as it is.")
    safe = "1 pair is removed, and its engines cannot talk any more: merge once no engine uses it."
    assert safe in " ".join(said.stdout.split())
    assert "REMOVED\n  mini/chat\n" in said.stdout
    assert rules(run("diff", "git:HEAD:plans", "deploy.yaml", "--format", "json")) == {
        "PAIR_NEW",
        "PAIR_GONE",
        "DESCRIPTORS",
        "MOVED_BYTES",
    }


def test_a_plan_that_the_index_does_not_list_is_gone(repository: Path) -> None:
    """Without `--prune` its file stays, but no engine loads it any more."""
    deployment("prefill: [tp=4], decode: [tp=1]", "name: chat, prefill: [tp=2], decode: [tp=2]")
    assert run("compile", "deploy.yaml", "-o", "plans").exit_code == 0
    assert Path("plans/mini/p_tp2__d_tp1.py").is_file()
    words = ("--fail-on", "LAYOUT", "--layouts", "mine")
    pruned = run("diff", "git:HEAD:plans", "deploy.yaml", *words)
    git("add", ".")
    git("commit", "-qm", "without --prune")
    for new in ("plans", "git:HEAD:plans"):
        said = run("diff", "git:HEAD~1:plans", new, *words)
        assert (said.exit_code, said.stdout) == (1, pruned.stdout)
        below = run("diff", "git:HEAD~1:plans/mini", f"{new}/mini", "--fail-on", "LAYOUT")
        assert (below.exit_code, "(was p_tp2__d_tp1)" in below.stdout) == (1, True)


def test_an_index_above_that_is_something_else_says_nothing(repository: Path) -> None:
    Path("plans/index.json").unlink()
    Path("index.json").write_text('{"pages": []}')
    assert run("diff", "git:HEAD", "plans").exit_code == 0


def test_a_folder_of_which_the_index_above_lists_nothing(repository: Path) -> None:
    shutil.copytree("plans/mini", "plans/old")
    said = run("diff", "plans/mini", "plans/old")
    assert (said.exit_code, "error[S021]: plans/index.json lists no plan in 'plans/old'" in said.stderr) == (2, True)


def test_an_option_that_is_left_out_has_its_default(repository: Path) -> None:
    edit("decode: [tp=2]", "decode: ['tp=2,block=32']", "deploy.yaml")
    said = run("diff", "git:HEAD:plans", "deploy.yaml")
    assert "OPTION          block: 16 (default) → 32  [decode]" in said.stdout
    assert "PAGE_BYTES" in said.stdout
    assert "per token" not in said.stdout, "a block of more tokens has more bytes, and a token as many as before"


@pytest.mark.parametrize(
    "how", ["its text differs from the sha256 in index.json", "is missing, but index.json lists it"]
)
def test_a_plan_that_engines_refuse_is_an_error(repository: Path, how: str) -> None:
    path = Path("plans/mini/chat.py")
    path.unlink() if "missing" in how else path.write_text(path.read_text() + "# edited\n")
    said = run("diff", "git:HEAD", "plans")
    assert (said.exit_code, how in said.stderr) == (2, True), said.stderr
    assert "error[R006]: plans/mini/chat.py" in said.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "plans/mini/chat.py"],
        ["show", "plans/mini/chat.py", "-o", "-"],
        ["trace", "plans/mini/chat.py"],
        ["diff", "plans/mini/p_tp2__d_tp1.py", "plans/mini/chat.py"],
        ["diff", "git:HEAD:plans/mini/p_tp2__d_tp1.py", "git:edited:plans/mini/chat.py"],
    ],
)
def test_one_plan_that_engines_refuse_is_an_error(repository: Path, words: list[str]) -> None:
    """Also where only its comments are edited, which no digest has."""
    edit("A span is contiguous", "A span is adjacent", "plans/mini/chat.py")
    git("checkout", "-qb", "edited")
    git("commit", "-qam", "edited")
    said = run(*words)
    assert (said.exit_code, "error[R006]" in said.stderr) == (2, True), said.stdout
    Path("plans/index.json").unlink()
    git("commit", "-qam", "no index")
    assert "R006" not in run(*words).stderr


def test_a_deployment_without_plans_has_an_index(repository: Path) -> None:
    shutil.rmtree("plans/mini")
    Path("plans/index.json").write_text('{"format": 1, "plans": []}')
    said = run("diff", "git:HEAD", "plans")
    assert (said.exit_code, said.stdout.partition("\n")[0]) == (1, "2 plans are removed.")
    said = run("diff", "git:HEAD", "plans", "--fail-on", "PAIR")
    assert re.search(r"pair: mini/\*, change: \[\w{8}-none, \w{8}-none\]", " ".join(said.stdout.split()))


def test_plans_are_new_only_without_an_index_of_plans_in_the_revision(repository: Path) -> None:
    edit("state: 128", "state: 64")
    compiled()
    git("mv", "plans", "plans2")
    for words in (["git:HEAD", "plans2"], ["git:HEAD:plans2", "deploy.yaml"], ["git:HEAD:later", "deploy.yaml"]):
        said = run("diff", *words)
        assert (said.exit_code, "error[S021]" in said.stderr, "git:HEAD:plans" in said.stderr) == (2, True, True)


@pytest.mark.parametrize(
    "setting",
    ["grep.lineNumber true", "grep.column true", "grep.patternType fixed", "color.grep always", "color.ui always"],
)
def test_plans_of_a_revision_are_found_whatever_git_is_configured_to(repository: Path, setting: str) -> None:
    git("config", *setting.split())
    git("mv", "plans", "plans2")
    said = run("diff", "git:HEAD", "plans2")
    assert (said.exit_code, "elsewhere: git:HEAD:plans; if" in " ".join(said.stderr.split())) == (2, True), said.output


def test_a_name_beyond_ascii_is_suggested_as_it_is(repository: Path) -> None:
    """Git quotes such names unless it ends them with NUL."""
    git("mv", "plans", "pläne")
    git("commit", "-qm", "plans")
    assert "did you mean 'git:HEAD:pläne'?" in run("diff", "git:HEAD:pläme", "pläne").stderr


@pytest.mark.parametrize("unindexed", ["before", "now", "both"])
@pytest.mark.parametrize(
    "to", ["plans2", *(pytest.param(to, marks=pytest.mark.full) for to in ("plans/more", "other/plans"))]
)
def test_plans_that_moved_are_not_new_without_an_index(repository: Path, unindexed: str, to: str) -> None:
    if unindexed in ("before", "both"):
        git("rm", "-q", "plans/index.json")
        git("commit", "-qm", "no index")
    edit("state: 128", "state: 64")
    Path("plans").rename("moved")
    Path(to).parent.mkdir(exist_ok=True)
    Path("moved").rename(to)
    if unindexed != "before":
        Path(to, "index.json").unlink(missing_ok=True)
    git("add", ".")
    for words in (["git:HEAD", to], [f"git:HEAD:{to}", "deploy.yaml"], ["git:HEAD:later", "deploy.yaml"]):
        said = run("diff", *words)
        assert (said.exit_code, "error[S021]" in said.stderr) == (2, True), words
        assert "it has plans elsewhere: git:HEAD:plans; if they moved" in " ".join(said.stderr.split())
    git("commit", "-qm", "moved")
    assert run("diff", f"git:HEAD~1:{to}", f"git:HEAD:{to}").exit_code == 2
    assert "2 plans change" in run("diff", "git:HEAD~1:plans", "deploy.yaml").stdout


@pytest.mark.parametrize("moved", ["plans/mini", "plans/mini/chat.py"])
@pytest.mark.parametrize("indexed", [True, False])
def test_plans_that_moved_from_among_others_are_not_new(repository: Path, moved: str, indexed: bool) -> None:
    """Their directory still has plans, so it does not look moved."""
    shutil.copytree("plans/mini", "plans/other")
    if not indexed:
        Path("plans/index.json").unlink()
    git("add", ".")
    git("commit", "-qm", "two models")
    Path("plans2/mini").mkdir(parents=True)
    for path in sorted(Path().glob(f"{moved}/*.py")) or [Path(moved)]:
        git("mv", str(path), f"plans2/mini/{path.name}")
    git("commit", "-qm", "one of them moves")
    for new in ("plans2", "plans2/mini", "git:HEAD:plans2"):
        said = run("diff", f"git:HEAD~1:{new.removeprefix('git:HEAD:')}", new)
        assert (said.exit_code, "it has plans elsewhere" in " ".join(said.stderr.split())) == (2, True), said.output


def test_a_plan_that_moved_to_another_name_is_not_new(repository: Path) -> None:
    Path("plans2/mini").mkdir(parents=True)
    git("mv", "plans/mini/p_tp2__d_tp1.py", "plans2/mini/moved.py")
    said = run("diff", "git:HEAD:plans2", "plans2")
    assert (said.exit_code, "it has plans elsewhere" in " ".join(said.stderr.split())) == (2, True), said.output


def test_plans_are_new_beside_others_that_are_removed(repository: Path) -> None:
    assert run("compile", "mine/mini.yaml", "--prefill", "tp=1", "--decode", "tp=2", "-o", "plans2").exit_code == 0
    git("rm", "-q", "plans/mini/p_tp2__d_tp1.py")
    said = run("diff", "git:HEAD:plans2", "plans2")
    assert (said.exit_code, "All plans are new: OLD has none." in said.stdout) == (0, True), said.output


def test_plans_that_moved_up_are_compared(repository: Path) -> None:
    git("mv", "plans", "inner")
    Path("plans").mkdir()
    git("mv", "inner", "plans/inner")
    git("commit", "-qm", "deep")
    git("mv", "plans/inner/mini", "plans/mini")
    git("mv", "plans/inner/index.json", "plans/index.json")
    assert "2 plans are renamed" in run("diff", "git:HEAD", "plans").stdout


@pytest.mark.parametrize("before", ["__init__.py", ".gitkeep", "README.md", "mini/__init__.py"])
def test_plans_are_new_in_a_folder_that_had_other_files(repository: Path, before: str) -> None:
    git("rm", "-rq", "--cached", "plans")
    Path("plans", before).write_text("")
    git("add", "-f", f"plans/{before}")
    git("commit", "-qm", "no plans")
    for new in ("plans", "deploy.yaml"):
        said = run("diff", "git:HEAD:plans", new)
        assert (said.exit_code, "All plans are new: OLD has none." in said.stdout) == (0, True), said.output


def test_two_revisions_are_compared_without_the_files_that_are_there_now(repository: Path) -> None:
    git("mv", "plans", "away")
    git("commit", "-qm", "away")
    git("rm", "-rq", "away")
    git("commit", "-qm", "none")
    git("checkout", "-q", "HEAD~1", "--", "away")
    git("mv", "away", "plans")
    git("commit", "-qm", "plans again")
    shutil.rmtree("plans")
    said = run("diff", "git:HEAD~1:plans", "git:HEAD:plans")
    assert (said.exit_code, "All plans are new: OLD has none." in said.stdout) == (0, True), said.output


def test_a_revision_without_plans_and_an_empty_index(repository: Path) -> None:
    """An index that lists nothing is there, and so OLD is read."""
    shutil.rmtree("plans/mini")
    Path("plans/index.json").write_text('{"format": 1, "plans": []}')
    git("add", ".")
    git("commit", "-qm", "empty")
    assert "All plans are new: OLD has none." in run("diff", "git:HEAD:plans", "deploy.yaml").stdout
    Path("plans/index.json").write_text("{")
    git("commit", "-qam", "broken")
    said = run("diff", "git:HEAD:plans", "deploy.yaml")
    assert (said.exit_code, "error[R006]" in said.stderr) == (2, True)


def test_a_file_of_a_revision_that_is_no_text_is_no_plan(repository: Path) -> None:
    Path("plans/data.py").write_bytes(b"\xff\xfe")
    git("add", ".")
    git("commit", "-qm", "data")
    assert run("diff", "git:HEAD", "plans").stdout == "No plan changes; 2 stay as they are.\n"
    git("mv", "plans", "plans2")
    assert run("diff", "git:HEAD", "plans2").exit_code == 2


def test_a_second_deployment_is_compiled_before_its_plans_are_compared(repository: Path) -> None:
    Path("deploy.yaml").rename("other.yaml")
    said = " ".join(run("diff", "git:HEAD:others", "other.yaml").stderr.split())
    assert "if they moved, compare with those; if not, write plans first: kvplan compile DEPLOYMENT -o others" in said
    Path("others").mkdir()
    assert "write plans" not in run("diff", "git:HEAD:others", "plans").stderr


def test_plans_of_a_second_deployment_are_new(repository: Path) -> None:
    compiled()
    shutil.copytree("plans", "more")
    said = run("diff", "git:HEAD:more", "more")
    assert (said.exit_code, "All plans are new: OLD has none." in said.stdout) == (0, True)


def test_first_plans_are_new_before_they_are_written(repository: Path) -> None:
    """Another tool's index.json is no index of plans."""
    git("rm", "-rq", "plans")
    Path("index.json").write_bytes(b"\xff{}")
    Path("web").mkdir()
    Path("web/index.json").write_text("{}")
    git("add", ".")
    git("commit", "-qm", "no plans")
    said = run("diff", "git:HEAD:plans", "deploy.yaml")
    assert (said.exit_code, "All plans are new: OLD has none." in said.stdout) == (0, True)
    for word in ("git:HEAD", "git:HEAD:mine", "git:HEAD:plans/chat.py", "git:HEAD:other.yaml"):
        assert run("diff", word, "deploy.yaml").exit_code == 2


def test_text_alone(repository: Path) -> None:
    edit("title: Mini", "title: Maxi")
    said = run("diff", "plans", "deploy.yaml", "--fail-on", "layout", "--fail-on", "plan")
    assert (said.exit_code, "Only the text changes: old and new engines can talk." in said.stdout) == (0, True)
    assert "CAUSE\n  TITLE " in said.stdout
    assert "those can talk" not in said.stdout, "it is said once"


def test_engines_of_other_plans_are_no_cause(repository: Path) -> None:
    """An engine's layout that no plan here uses changes no plan."""
    engines = Path("layouts")
    engines.mkdir()
    for name in ("mine", "others"):
        text = f"kvplan: 1\nengine: {name}\nextends: vllm\ntitle: T\noptions: {{block: {{default: 16}}}}\n"
        (engines / f"{name}.yaml").write_text(text)
    edit("decode: [tp=2]", 'decode: ["engine=mine,tp=2"]', "deploy.yaml")
    assert run("compile", "deploy.yaml", "-o", "plans", "--layouts", "layouts").exit_code == 0
    git("add", ".")
    git("commit", "-qm", "engines")
    for name in ("mine", "others"):
        edit("default: 16", "default: 32", f"layouts/{name}.yaml")
    said = run("diff", "git:HEAD:plans", "deploy.yaml", "--layouts", "layouts")
    assert ("layouts/mine.yaml: options.block.default" in said.stdout, "others" in said.stdout) == (True, False)


def test_what_fails(repository: Path) -> None:
    edit("decode: [tp=2]", 'decode: ["tp=2,order=nhd"]', "deploy.yaml")
    codes = {
        word: run("diff", "plans", "deploy.yaml", *(["--fail-on", word] if word else [])).exit_code
        for word in ("", "LAYOUT", "axis_order", "BLOCK_TOKENS", "PAIR", "COST", "PLAN")
    }
    assert codes == {"": 1, "LAYOUT": 1, "axis_order": 1, "BLOCK_TOKENS": 0, "PAIR": 0, "COST": 1, "PLAN": 0}


@pytest.mark.parametrize("form", ["text", "markdown", "github", "junit", "json"])
@pytest.mark.parametrize("words", [[], ["--cost-growth", "10%"], ["--fail-on", "LAYOUT"]])
def test_an_answer_that_fails_says_why(repository: Path, form: str, words: list[str]) -> None:
    edit("decode: [tp=2]", 'decode: ["tp=2,order=nhd"]', "deploy.yaml")
    said = run("diff", "plans", "deploy.yaml", *words, "--format", form)
    assert said.exit_code == 1
    if form == "json":
        assert json.loads(said.stdout)["fails"]
    elif form == "junit":
        assert "LAYOUT" in str([one.get("type") for one in ElementTree.fromstring(said.stdout).iter("failure")])
    else:
        assert re.search(r"Fails in 1 pair: .*LAYOUT", said.stdout)


@pytest.mark.parametrize(("share", "code"), [("0%", 1), ("49 %", 1), ("100000%", 0)])
def test_a_cost_fails_beyond_its_share(repository: Path, share: str, code: int) -> None:
    edit("prefill: [tp=2], decode: [tp=1]", 'prefill: [tp=2], decode: ["tp=1,order=nhd"]', "deploy.yaml")
    words = ["diff", "plans", "deploy.yaml", "--fail-on", "COST", "--cost-growth", share]
    assert run(*words).exit_code == code


def test_an_exception_of_a_name_that_no_plan_has_names_the_nearest(repository: Path) -> None:
    edit("state: 128", "state: 64")
    accept("rule: LAYOUT, pair: mini/chatt, reason: r", "rule: LAYOUT, pair: other/*, reason: r")
    said = " ".join(run("diff", "plans", "deploy.yaml").stdout.split())
    assert "accepts LAYOUT of mini/chatt, and no plan of that name changes: did you mean 'mini/chat'?" in said
    assert "accepts LAYOUT of other/*, and no plan of that name changes: remove it" in said


def test_pairs_that_fail_by_other_categories_are_named(repository: Path) -> None:
    edit("prefill: [tp=2], decode: [tp=1]", 'prefill: [tp=2], decode: ["tp=1,order=nhd"]', "deploy.yaml")
    edit(
        "prefill: [tp=2], decode: [tp=2]",
        "prefill: ['tp=2,kv_dtype=fp8'], decode: ['tp=2,kv_dtype=fp8']",
        "deploy.yaml",
    )
    said = " ".join(run("diff", "plans", "deploy.yaml").stdout.split())
    assert "; COST (more or fewer descriptors or bytes) in mini/p_tp2__d_tp1. `kvplan" in said


def test_what_an_option_changes_follows(repository: Path) -> None:
    """Somebody wrote the option; the number of workers and the type of elements come of it."""
    edit(
        "prefill: [tp=2], decode: [tp=2]",
        "prefill: ['tp=2,kv_dtype=fp8'], decode: ['tp=1,kv_dtype=fp8']",
        "deploy.yaml",
    )
    cause, _, follows = run("diff", "plans", "deploy.yaml").stdout.partition("WHAT FOLLOWS")
    assert ("OPTION" in cause, "DTYPE" in cause, "WORKERS" in cause) == (True, False, False)
    assert ("DTYPE" in follows, "WORKERS" in follows) == (True, True)


def test_a_suggestion_is_a_word(repository: Path) -> None:
    assert "did you mean 'LAYOUT'?" in run("diff", "plans", "plans", "--fail-on", "LAYOUTS").stderr


@pytest.mark.parametrize(
    ("sides", "start"),
    [
        ("prefill: [tp=2], decode: [tp=4]", "prefill as before, and decode with --tensor-parallel-size 4"),
        ("prefill: [tp=4], decode: [tp=2]", "prefill with --tensor-parallel-size 4, and decode as before"),
    ],
)
def test_other_compile_options_ask_for_a_restart(repository: Path, sides: str, start: str) -> None:
    """Engines choose among plans by them: a plan that only has others is not found without."""
    edit("prefill: [tp=2], decode: [tp=2]", f"{sides}, options: {{elect: spread}}", "deploy.yaml")
    said = json.loads(run("diff", "plans", "deploy.yaml", "--format", "json").stdout)
    assert said["sentence"].startswith("Roll out both sides together")
    assert f'Start {start}, both with plan_options {{"elect": "spread"}}.' in said["sentence"]
    assert "keeps running" not in said["sentence"]
    assert (said["plans"][0]["verdict"], said["plans"][0]["rolls"]) == ("together", ["prefill", "decode"])


@pytest.mark.parametrize(
    "words", [["--fail-on", "BITES"], ["--cost-growth", "much"], ["--cost-growth", "0.1"], ["--cost-growth", "-1%"]]
)
def test_words_that_mean_nothing(repository: Path, words: list[str]) -> None:
    assert run("diff", "plans", "plans", *words).exit_code == 2


@pytest.mark.parametrize("words", [["--fail-on", "LAYOUT"], ["--fail-on", "PLAN", "--fail-on", "TOLD"]])
def test_a_share_of_a_cost_without_a_cost_is_refused(repository: Path, words: list[str]) -> None:
    """Otherwise a pipeline that sets one would pass whatever a change costs."""
    said = run("diff", "plans", "plans", *words, "--cost-growth", "10%")
    assert (said.exit_code, "error[S028]: --cost-growth has no effect" in said.stderr) == (2, True)
    assert run("diff", "plans", "plans", *words, "--fail-on", "DESCRIPTORS", "--cost-growth", "10%").exit_code == 0
    assert run("diff", "plans", "plans", "--cost-growth", "10%").exit_code == 0


def test_the_first_of_pairs_whose_costs_grow_alike_is_timed(repository: Path) -> None:
    rows = [f"name: {name}, prefill: [tp=2], decode: ['tp=1{{}}']" for name in "ab"]
    for folder, option in (("old", ""), ("new", ",order=nhd")):
        deployment(*(row.format(option) for row in rows))
        compiled(folder)
    assert "The time of NEW of plan 1, whose" in run("diff", "old", "new").stdout


def test_pages_that_match_no_more_are_the_cause_of_a_cost(repository: Path) -> None:
    """Named at first sight, with the command that says what lowers it."""
    edit("prefill: [tp=2], decode: [tp=1]", 'prefill: [tp=2], decode: ["tp=1,block=4192"]', "deploy.yaml")
    said = run("diff", "plans", "deploy.yaml")
    assert "PAGE_COPIES     attention pages are copied: page by page → by runs of tokens" in said.stdout
    joined = " ".join(said.stdout.split())
    assert (
        "The time of NEW, and which settings lower it: "
        "kvplan advise mini --prefill tp=2 --decode tp=1,block=4192 --layouts mine "
        "The time of OLD: kvplan advise mini --prefill tp=2 --decode tp=1 --layouts mine " in joined
    )
    assert re.search(r"runs of tokens, because a page has [\d,]+ tokens on prefill, 4,192 on decode", joined)
    assert "      kvplan advise mini --prefill tp=2 --decode tp=1,block=4192 --layouts mine" in said.stdout.splitlines()
    assert "kvplan advise" in run("diff", "plans", "deploy.yaml", "--format", "markdown").stdout
    assert "kvplan advise" not in run("diff", "plans", "git:HEAD").stdout


@pytest.mark.parametrize(("prefill", "decode"), [("tp=4", "tp=2"), ("tp=2", "tp=4"), ("tp=4", "tp=4")])
def test_a_verdict_names_the_side_that_changes(repository: Path, prefill: str, decode: str) -> None:
    """A side whose digest stays keeps running, as `--fleet` has it."""
    edit("prefill: [tp=2], decode: [tp=2]", f"prefill: [{prefill}], decode: [{decode}]", "deploy.yaml")
    sides = {"prefill": prefill, "decode": decode}
    rolls = [side for side, key in sides.items() if key != "tp=2"]
    answer = json.loads(run("diff", "plans", "deploy.yaml", "--format", "json").stdout)
    assert [plan["rolls"] for plan in answer["plans"]] == [rolls]
    one, both = (
        f"Only {rolls[0]} changes. 1. Put both plans into one index, because",
        "Roll out both sides together",
    )
    assert answer["sentence"].startswith(both if len(rolls) == 2 else one)
    kept = {"prefill": "decode", "decode": "prefill"}[rolls[0]]
    # The other pair has the same prefill side.
    number = 3 if "prefill" in rolls else 2
    step = f"{number}. While {kept} keeps running, restart {rolls[0]} with --tensor-parallel-size 4."
    assert (step in answer["sentence"]) == (len(rolls) == 1)
    assert answer["verdict"] == answer["plans"][0]["verdict"] == ("together" if len(rolls) == 2 else "one-side")


def sentence(*words: str) -> str:
    answer: str = json.loads(run("diff", "git:HEAD:plans", "deploy.yaml", *words, "--format", "json").stdout)[
        "sentence"
    ]
    return answer


def test_options_are_of_the_side_that_has_them(repository: Path) -> None:
    """A layout and options of decode change: prefill restarts without other options, and no deployment has both."""
    edit("state: 128", "state: 64")
    edit("decode: [tp=2]", "decode: ['tp=1,block=96']", "deploy.yaml")
    said = sentence()
    assert "prefill as before, and decode with --tensor-parallel-size 1 and --block-size 96" in said
    assert "with the new mine/mini.yaml" in said
    assert "keep the old pair" not in said


def test_a_changed_layout_goes_to_the_engines(repository: Path) -> None:
    edit("state: 128", "state: 64")
    assert "Start prefill and decode with the new mine/mini.yaml." in sentence()
    compiled()
    said = json.loads(run("diff", "git:HEAD", "plans", "--format", "json").stdout)["sentence"]
    assert "Start prefill and decode with the new layout." in said


def test_options_that_change_what_is_stored_are_no_new_layout(repository: Path) -> None:
    """No layout file differs, so one deployment can have both pairs."""
    fp8 = "tp=2,kv_dtype=fp8"
    edit("prefill: [tp=2], decode: [tp=2]", f"prefill: ['{fp8}'], decode: ['{fp8}']", "deploy.yaml")
    for said in (sentence(), sentence("--layouts", "mine")):
        assert "Start prefill with --kv-cache-dtype fp8 and decode with --kv-cache-dtype fp8." in said
        assert "or keep the old pair in the deployment" in said


def test_a_side_that_restarts_without_an_option_has_a_new_layout(repository: Path) -> None:
    edit("dim: 128}", "dim: 128, needs: {window: 512}}")
    compiled()
    said = json.loads(run("diff", "git:HEAD", "plans", "--format", "json").stdout)["sentence"]
    assert "Start prefill and decode with the new layout." in said


def test_blocks_that_grow_otherwise_than_their_pages_are_told(repository: Path) -> None:
    """Memory is the distance between blocks: a page that is half as large saves less if blocks stay apart."""
    edit("decode: [tp=1]", "decode: ['tp=2,block=4192']", "deploy.yaml")
    said = run("diff", "git:HEAD:plans", "deploy.yaml").stdout
    assert re.search(r"^  PAGE_BYTES +mamba page: .*\(−50 %\)", said, re.M)
    assert re.search(r"^  BLOCK_STRIDE +.*mamba from block to block: ", said, re.M), said


def test_another_engine_is_told_as_one_with_its_side(repository: Path) -> None:
    """Options that one engine lacks, or has by default, are no causes beside another engine."""
    edit("models: [mine/mini.yaml]", "models: [qwen3-0.6b]", "deploy.yaml")
    edit("decode: [tp=2]", "decode: ['tp=2,order=nhd']", "deploy.yaml")
    compiled()
    git("add", ".")
    git("commit", "-qam", "nhd")
    edit("decode: ['tp=2,order=nhd']", "decode: ['engine=sglang,tp=2']", "deploy.yaml")
    assert "restart decode as engine=sglang,tp=2 in place of vllm." in sentence()
    back = run("diff", "deploy.yaml", "git:HEAD:plans", "--format", "json").stdout
    assert "restart decode as engine=vllm,tp=2,order=LBNHC in place of sglang." in json.loads(back)["sentence"]
    said = run("diff", "git:HEAD:plans", "deploy.yaml").stdout
    cause = said.partition("CAUSE\n")[2].partition("\n\n")[0].splitlines()
    assert re.fullmatch(r"  OPTION +engine: vllm \(default\) → sglang  \[decode\]", cause[0])
    assert not [line for line in cause if "order" in line]


def test_values_to_copy_are_those_of_the_engine(repository: Path) -> None:
    edit("decode: [tp=2]", "decode: ['tp=1,order=nhd']", "deploy.yaml")
    assert "restart decode with --tensor-parallel-size 1 and VLLM_KV_CACHE_LAYOUT=LBNHC." in sentence()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("tp=2,order=nhd,block=32", "tp=2", "without VLLM_KV_CACHE_LAYOUT and --block-size"),
        ("tp=2,block=32", "tp=1", "with --tensor-parallel-size 1 and without --block-size"),
        ("tp=2,conv=SD", "tp=2", "with VLLM_SSM_CONV_STATE_LAYOUT=DS"),
        ("tp=2", "tp=2,conv=SD", "with VLLM_SSM_CONV_STATE_LAYOUT=SD"),
        ("tp=2", "tp=2,state_step=64", "with state_step=64"),
    ],
)
def test_an_option_that_is_left_out_is_left_out_of_the_engines_command(
    repository: Path, before: str, after: str, said: str
) -> None:
    """Unless the engine itself would take another value then."""
    for name, decode in (("old", before), ("new", after)):
        deployment(f"name: chat, prefill: ['tp=2'], decode: ['{decode}']")
        compiled(name)
    answer = run("diff", "old", "new", "--layouts", "mine", "--format", "json")
    assert f"restart decode {said}." in json.loads(answer.stdout)["sentence"]


def test_the_options_of_plans_are_those_that_a_connector_takes(repository: Path) -> None:
    """A removed option is left out, and the others stay."""
    pair = "name: chat, prefill: [tp=2], decode: [tp=2], options:"
    for name, options in (("old", "{elect: spread, strategy: auto}"), ("new", "{strategy: auto}"), ("none", "{}")):
        deployment(f"{pair} {options}")
        compiled(name)
    said = json.loads(run("diff", "old", "new", "--format", "json").stdout)["sentence"]
    assert 'with plan_options {"strategy": "auto"}.' in said
    assert "with plan_options {}." in json.loads(run("diff", "old", "none", "--format", "json").stdout)["sentence"]


def test_compile_options_that_change_no_bytes_say_so(repository: Path) -> None:
    edit("prefill: [tp=2], decode: [tp=2]", "prefill: [tp=2], decode: [tp=2], options: {elect: spread}", "deploy.yaml")
    for form in ("text", "markdown"):
        said = " ".join(run("diff", "plans", "deploy.yaml", "--format", form).stdout.split())
        assert "The same bytes move: a restart for this alone gains nothing" in said


def test_a_clone_of_kvplan_has_other_revisions(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind that kvplan changed in its newest commit is no cause of what changed in the newest commit here."""
    clone, here = tmp_path_factory.mktemp("clone"), Path.cwd()
    monkeypatch.chdir(clone)
    git("init", "-q")
    for sink in (0, 4):
        Path("gqa.yaml").write_text(f"kvplan: 1\nkind: gqa\ntitle: Keys\nparams: {{sink: {{default: {sink}}}}}\n")
        git("add", ".")
        git("commit", "-qm", "kind")
    monkeypatch.chdir(here)
    monkeypatch.setattr("kvplan.review.sources.files", lambda _: clone)
    edit("decode: [tp=2]", "decode: [tp=4]", "deploy.yaml")
    compiled()
    git("commit", "-qam", "four")
    said = run("diff", "git:HEAD~1:plans", "git:HEAD:plans")
    assert (said.exit_code, "gqa.yaml" in said.output) == (1, False)


def test_two_revisions_need_one_path(repository: Path) -> None:
    edit("decode: [tp=2]", "decode: [tp=4]", "deploy.yaml")
    compiled()
    git("commit", "-qam", "four")
    expected = run("diff", "git:HEAD~1:plans", "git:HEAD:plans").stdout
    assert "1 plan changes" in expected
    for old, new in (("git:HEAD~1", "git:HEAD:plans"), ("git:HEAD~1:plans", "git:HEAD"), ("HEAD~1", "git:HEAD:plans")):
        assert run("diff", old, new).stdout == expected
    for old, new in (("git:HEAD~1", "git:HEAD"), ("HEAD~1", "HEAD"), ("git:HEAD~1", "HEAD")):
        said = run("diff", old, new)
        assert (said.exit_code, "neither" in said.stderr, ":plans" in said.stderr) == (2, True, True)


def test_flags_of_an_engine_need_no_file_of_the_model(repository: Path) -> None:
    edit("prefill: [tp=2], decode: [tp=2]", 'prefill: [tp=2], decode: ["tp=2,order=nhd,block=4192"]', "deploy.yaml")
    compiled()
    for words in (["git:HEAD", "plans"], ["git:HEAD:plans", "deploy.yaml"]):
        said = " ".join(run("diff", *words).stdout.split())
        assert "restart decode with VLLM_KV_CACHE_LAYOUT=LBNHC and --block-size 4192." in said


def test_layouts_that_are_not_compared_are_told(repository: Path) -> None:
    edit("state: 128", "state: 64")
    compiled()
    told = "layout files were not compared: give --layouts DIR"
    assert told in run("diff", "git:HEAD", "plans").stdout
    assert told not in run("diff", "git:HEAD", "plans", "--layouts", "mine").stdout


@pytest.mark.parametrize("form", FORMATS)
def test_new_doubts_about_a_layout_are_told(repository: Path, form: str) -> None:
    """A reviewer may see nothing else: heads of 63 elements are refused by an engine, or slow."""
    edit("dim: 128", "dim: 63")
    told = run("diff", "plans", "deploy.yaml", "--format", form).stdout
    assert re.search(r"mini: .*63.* \(W003\)", " ".join(told.split()))
    compiled()
    edit("heads: 64, head_dim: 64", "heads: 32, head_dim: 64")
    assert "W003" not in run("diff", "plans", "deploy.yaml", "--format", form).stdout, "it was told when it was new"


def test_check_of_a_deployment_reports_doubts_about_its_models(repository: Path) -> None:
    edit("dim: 128", "dim: 63")
    said = run("check", "deploy.yaml")
    assert (said.exit_code, "warning[W003]" in said.stdout, "mine/mini.yaml:" in said.stdout) == (0, True, True)
    assert (
        "2 files: no errors, 2 warnings; `kvplan compile --check` says whether each pair can be compiled"
        in " ".join(said.stdout.split())
    )


@pytest.mark.parametrize("command", ["show", "explain", "simulate", "trace"])
def test_a_directory_of_plans_is_not_taken_for_a_model(repository: Path, command: str) -> None:
    said = run(command, "plans")
    assert (said.exit_code, "'plans' is a directory of plans, and one plan is needed" in said.stderr) == (2, True)


def test_a_title_is_a_cause(repository: Path) -> None:
    edit("title: Mini", "title: Small")
    said = run("diff", "git:HEAD:plans", "deploy.yaml").stdout
    assert "CAUSE\n  TITLE           title: Mini → Small\n" in said
    assert "WHAT FOLLOWS" not in said


@pytest.mark.parametrize("own", [True, False])
def test_a_printed_command_has_layouts_if_it_needs_them(repository: Path, own: bool) -> None:
    """A model of another name would be advised otherwise, or none at all."""
    model = "mine/mini.yaml" if own else "qwen3-0.6b"
    rows = [
        f"  - {{name: a, models: [{model}], prefill: [tp=2], decode: [{side}]}}"
        for side in ("tp=2", '"tp=2,order=nhd"')
    ]
    other = "  - {name: b, models: [mine/mini.yaml], prefill: [tp=2], decode: [tp=2]}"
    for row in rows:
        Path("deploy.yaml").write_text(
            f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n{row}\n{'' if own else other}\n"
        )
        compiled("new" if row is rows[1] else "old")
    said = " ".join(run("diff", "old", "new").stdout.split())
    assert ("--layouts DIR" in said.partition("kvplan advise")[2]) == own
    compiled("new")
    said = " ".join(run("diff", "old", "deploy.yaml").stdout.split())
    assert ("--layouts mine" in said.partition("kvplan advise")[2]) == own


def test_pairs_of_which_other_sides_change_have_one_list_of_steps(repository: Path) -> None:
    edit("prefill: [tp=2], decode: [tp=2]", "prefill: [tp=4], decode: [tp=2]", "deploy.yaml")
    edit("decode: [tp=1]", "decode: ['tp=1,block=32']", "deploy.yaml")
    sentence = json.loads(run("diff", "plans", "deploy.yaml", "--format", "json").stdout)["sentence"]
    assert sentence.startswith("Only prefill changes in mini/chat; only decode changes in mini/p_tp2__d_tp1. 1. ")
    assert sentence.count("1. Put both plans") == 1
    restart = "restart mini/chat prefill with --tensor-parallel-size 4; mini/p_tp2__d_tp1 decode with --block-size 32"
    assert f"3. While the other side keeps running, {restart}." in sentence


OTHERS = "2. Leave some engines as they are for other pairs, or change these pairs, too: "


@pytest.mark.parametrize("folder", [True, False])
def test_a_verdict_names_other_pairs_that_need_a_side_that_restarts(repository: Path, folder: bool) -> None:
    """Without engines of its own such a pair would be left without a plan for anybody."""
    edit("prefill: [tp=2], decode: [tp=2]", 'prefill: ["tp=2,block=4192"], decode: [tp=2]', "deploy.yaml")
    if folder:
        compiled("now")
    said = " ".join(run("diff", "plans", "now" if folder else "deploy.yaml").stdout.split())
    assert f"{OTHERS}mini/p_tp2__d_tp1 needs prefill tp=2. 3. While decode keeps running, restart prefill" in said
    edit("prefill: [tp=2], decode: [tp=1]", 'prefill: ["tp=2,block=4192"], decode: [tp=1]', "deploy.yaml")
    assert "other pairs" not in run("diff", "plans", "deploy.yaml").stdout


@pytest.mark.parametrize(
    ("old", "new", "other", "needs"),
    [
        ("spread", "one", "tp=1", ' with plan_options {"elect": "spread"}'),
        ("one", "spread", "tp=1", " without plan_options"),
        ("spread", "one", "tp=4", ' with plan_options {"elect": "spread"}'),
    ],
)
def test_a_verdict_names_other_pairs_that_need_the_old_plan_options(
    repository: Path, old: str, new: str, other: str, needs: str
) -> None:
    """One whose other side changes needs them, too."""
    row = "prefill: [tp=2], decode: [{}], options: {{elect: {}}}"
    chat = "name: chat, prefill: [tp=2], decode: [tp=2], options: {{elect: {}}}"
    deployment(row.format("tp=1", old), chat.format(old))
    compiled("before")
    deployment(row.format(other, old), chat.format(new))
    said = " ".join(run("diff", "before", "deploy.yaml").stdout.split())
    assert f"needs prefill tp=2{needs}. 3. Start" in said
    deployment(row.format(other, new), chat.format(new))
    assert "other pairs" not in run("diff", "before", "deploy.yaml").stdout


def accept(*rows: str) -> None:
    Path("kvplan-diff.yaml").write_text("accept:\n" + "".join(f"  - {{{row}}}\n" for row in rows))


def accepting(said: Result) -> list[str]:
    """The entries that an answer proposes for the file of exceptions."""
    return re.findall(r'^  - \{(.*?reason: "WHY")\}$', said.stdout, re.MULTILINE | re.DOTALL)


def test_what_is_accepted_does_not_fail(repository: Path) -> None:
    edit("state: 128", "state: 64")
    accept("rule: LAYOUT, pair: mini/*, reason: rolled out on Monday", "rule: COST, pair: mini/chat, reason: rare")
    said = run("diff", "plans", "deploy.yaml", "--fail-on", "LAYOUT")
    assert (said.exit_code, "accepted: LAYOUT of mini/*: rolled out on Monday" in said.stdout) == (0, True)
    assert "Nothing fails." in said.stdout
    assert "kvplan-diff.yaml:3: accepts COST of mini/chat, which does not change: remove it" in said.stdout
    accept("rule: LAYOUT, pair: mini/chat, reason: rolled out on Monday")
    said = run("diff", "plans", "deploy.yaml", "--fail-on", "LAYOUT")
    assert (said.exit_code, "Fails in 1 pair: LAYOUT (" in said.stdout) == (1, True)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_what_fails_is_accepted_by_the_lines_it_shows_and_by_no_less(repository: Path, form: str) -> None:
    edit("state: 128", "state: 64")
    words = ["diff", "plans", "deploy.yaml", "--fail-on", "LAYOUT", "--format", form]
    said = run(*words)
    entries = accepting(said)
    assert (said.exit_code, bool(entries)) == (1, True)
    accept(*entries)
    unsaid = run(*words)
    assert (unsaid.exit_code, "error[S037]" in unsaid.stderr) == (2, True)
    accept(*(entry.replace("WHY", "both are drained, then restarted") for entry in entries))
    said = run(*words)
    assert (said.exit_code, "accepted" in said.stdout, "WHY" in said.stdout) == (0, True, False)
    edit("layers: 8", "layers: 12")
    said = run(*words)
    assert (said.exit_code, "- {rule: [" in said.stdout) == (1, True)


def test_pairs_of_one_folder_with_the_same_changes_have_one_entry(repository: Path) -> None:
    edit("state: 128", "state: 64")
    [entry] = accepting(run("diff", "plans", "deploy.yaml"))
    assert re.search(r"pair: mini/\*, change: \[[0-9a-f]{8}-[0-9a-f]{8}, [0-9a-f]{8}-[0-9a-f]{8}\]", entry)


def test_groups_that_share_memory_are_one_change(repository: Path) -> None:
    """A new group overlays all others: one line says so, not one for each; and equal spans are counted."""
    edit("layer % 4 == 3", "layer % 5 == 3")
    edit("layer % 4 != 3", "layer % 5 != 3")
    said = run("diff", "plans", "deploy.yaml", "--verbose").stdout
    assert said.partition("COST of")[0].count("GROUP_KIND") == 1
    for row in re.findall(r"SPANS  .*?(?=\n  [A-Z])", said, re.DOTALL):
        before, _, _ = " ".join(row.split()).partition(" → ")
        tables = [table.partition(": ")[2] or table for table in before.split(" / ")]
        assert len({*tables}) == len(tables)


def test_the_lines_it_shows_accept_no_other_change_by_the_same_rules(repository: Path) -> None:
    """The file lives on after a merge: it must not accept a later change, not even back to the plan of this one."""
    words = ["diff", "git:HEAD:plans", "deploy.yaml", "--fail-on", "LAYOUT"]
    edit("decode: [tp=2]", "decode: [tp=4]", "deploy.yaml")
    entries = accepting(run(*words))
    accept(*(entry.replace("WHY", "two to four") for entry in entries))
    assert run(*words).exit_code == 0
    edit("decode: [tp=4]", "decode: [tp=8]", "deploy.yaml")
    said = run(*words)
    assert (said.exit_code, "accepted:" in said.stdout) == (1, False)
    assert "of another change of mini/chat than this one: once that is merged, remove it" in " ".join(
        said.stdout.split()
    )
    compiled()
    git("commit", "-qam", "eight")
    edit("decode: [tp=8]", "decode: [tp=4]", "deploy.yaml")
    assert run(*words).exit_code == 1


def test_two_files_are_accepted_by_the_lines_it_shows(repository: Path) -> None:
    words = ["diff", "plans/mini/chat.py", "plans/mini/p_tp2__d_tp1.py", "--fail-on", "LAYOUT"]
    entries = accepting(run(*words))
    accept(*(entry.replace("WHY", "two pairs, not one") for entry in entries))
    assert run(*words).exit_code == 0


def test_layout_files_that_git_does_not_track_are_no_cause(repository: Path) -> None:
    """For example, layout files of a kvplan that is installed in an environment below the repository."""
    text = "kvplan: 1\nengine: {}\nextends: vllm\ntitle: T\noptions: {{block: {{default: 16}}}}\n"
    for name in ("mine", "ignored"):
        Path(f"{name}-engines").mkdir()
        Path(f"{name}-engines/{name}.yaml").write_text(text.format(name))
    git("add", "mine-engines")
    git("commit", "-qm", "engines")
    edit("state: 128", "state: 64")
    said = run("diff", "git:HEAD:plans", "deploy.yaml", "--layouts", "mine-engines", "--layouts", "ignored-engines")
    assert ("mamba.state" in said.stdout, "ignored-engines/" in said.stdout) == (True, False)


def test_a_hook_of_a_linked_work_tree_reads_the_folders_that_it_names(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git calls hooks of a linked work tree with GIT_DIR set, so that every folder would seem to be the top."""
    edit("state: 128", "state: 64")
    here = run("diff", "git:HEAD:plans", "deploy.yaml").stdout
    monkeypatch.setenv("GIT_DIR", str(repository / ".git"))
    assert run("diff", "git:HEAD:plans", "deploy.yaml").stdout == here


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("rule: [], pair: a, reason: b", "K003"),
        ("rule: [PLAN, BITES], pair: a, reason: b", "S027"),
        ("rule: BITES, pair: a, reason: b", "S027"),
        ("rule: LAYOUT, pair: a", "K002"),
        ("rule: LAYOUT, pair: a, reason: b, why: c", "K001"),
        ("rule: LAYOUT, pair: a, reason: [b]", "K003"),
    ],
)
def test_exceptions_that_cannot_be_read_have_their_places(repository: Path, row: str, code: str) -> None:
    accept(row)
    said = run("diff", "plans", "plans")
    assert (said.exit_code, f"error[{code}]" in said.stderr, "kvplan-diff.yaml:2:" in said.stderr) == (2, True, True)


@pytest.mark.parametrize("text", ["", "# none now\n", "accept:\n", "accept:\n  # none now\n", "accept: []\n"])
def test_a_file_whose_last_exception_was_removed_has_none(repository: Path, text: str) -> None:
    Path("kvplan-diff.yaml").write_text(text)
    said = run("diff", "plans", "plans")
    assert (said.exit_code, said.stderr) == (0, "")


@pytest.mark.parametrize("text", ["- {rule: LAYOUT, pair: a, reason: b}\n", "kvplan: 1\n", "accept: LAYOUT\n"])
def test_a_file_of_exceptions_is_not_taken_for_a_layout(repository: Path, text: str) -> None:
    Path("kvplan-diff.yaml").write_text(text)
    said = run("diff", "plans", "plans")
    assert (said.exit_code, "accept" in said.stderr, "begins with 'kvplan: 1'" in said.stderr) == (2, True, False)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("words", [(), ("--fail-on", "COST")])
def test_a_refused_pair_is_told_on_stdout_and_is_no_removal(
    repository: Path, form: str, words: tuple[str, ...]
) -> None:
    """A slip in a deployment must not look like the wish to remove a plan, or like an answer without faults."""
    edit("decode: [tp=1]", "decode: [tp=3]", "deploy.yaml")
    said = run("diff", "plans", "deploy.yaml", *words, "--format", form)
    shown = " ".join(said.stdout.split()).replace("%3A", ":").replace("%0A", " ")
    assert (said.exit_code, "C110" in shown, "tp=3" in shown, "deploy.yaml" in shown) == (3, True, True, True)
    assert "1 pair of NEW is refused and has no plan: correct NEW" in shown
    assert not re.search("This is safe|removed|Removed|REMOVED|Nothing fails", shown)


def test_a_refused_pair_is_an_error_for_programs(repository: Path) -> None:
    edit("decode: [tp=1]", "decode: [tp=3]", "deploy.yaml")
    answer = json.loads(run("diff", "plans", "deploy.yaml", "--format", "json").stdout)
    assert (answer["verdict"], answer["error"]["code"]) == ("refused", "C110")
    [one] = answer["refused"]
    assert (one["pair"], one["of"], one["code"], one["line"]) == ("mini: tp=2 -> tp=3", "NEW", "C110", 5)
    assert answer["missing"] == ["mini/p_tp2__d_tp1"]
    found = ElementTree.fromstring(run("diff", "plans", "deploy.yaml", "--format", "junit").stdout)
    assert (found.get("errors"), [one.get("type") for one in found.iter("error")]) == ("1", ["C110"])


def test_a_refused_pair_has_the_name_of_its_plan(repository: Path) -> None:
    """So a report says which plan has none; another pair of the model that goes is removed, not refused."""
    deployment("name: chat, prefill: [tp=2], decode: [tp=3]")
    answer = json.loads(run("diff", "plans", "deploy.yaml", "--format", "json").stdout)
    assert (answer["refused"][0]["name"], answer["missing"]) == ("mini/chat", ["mini/chat"])
    assert [one["name"] for one in answer["plans"]] == ["mini/p_tp2__d_tp1"]
    assert "`kvplan compile` keeps 1 plan of OLD until then. 1 pair is removed" in answer["sentence"]
    assert "mini/chat (mini: tp=2 -> tp=3) is refused (C110)" in " ".join(
        run("diff", "plans", "deploy.yaml").stdout.split()
    )
    suites = ElementTree.fromstring(run("diff", "plans", "deploy.yaml", "--format", "junit").stdout)
    assert ("mini", "chat") in [(one.get("classname"), one.get("name")) for one in suites.iter("testcase")]


def test_an_exception_for_a_refused_pair_is_not_judged(repository: Path) -> None:
    edit("prefill: [tp=2], decode: [tp=2]", "prefill: [tp=2], decode: [tp=3]", "deploy.yaml")
    accept("rule: LAYOUT, pair: mini/chat, reason: r")
    said = run("diff", "plans", "deploy.yaml")
    assert (said.exit_code, "accepts LAYOUT" in said.stdout) == (3, False)


@pytest.mark.parametrize("old", ["git:HEAD", "git:HEAD:first"])
def test_plans_that_a_revision_lacks_are_new(repository: Path, old: str) -> None:
    git("rm", "-rq", "--cached", "plans")
    git("commit", "-qm", "no plans")
    Path("plans").rename("first")
    for new in ("first", "deploy.yaml") if ":first" in old else ("first",):
        said = run("diff", old, new)
        assert (said.exit_code, said.stdout.startswith("2 plans are new.\n\nAll plans are new: OLD has none.")) == (
            0,
            True,
        )


def test_a_refused_pair_that_is_new_is_told(repository: Path) -> None:
    deployment("prefill: [tp=2], decode: [tp=1, tp=3]", "name: chat, prefill: [tp=2], decode: [tp=2]")
    for words in (["plans", "deploy.yaml"], ["deploy.yaml", "plans"]):
        said = run("diff", *words)
        assert (said.exit_code, "C110" in said.stdout, "Nothing fails" in said.stdout) == (3, True, False)


def test_a_removed_pair_has_a_verdict_of_its_own(repository: Path) -> None:
    deployment("name: chat, prefill: [tp=2], decode: [tp=2]")
    answer = json.loads(run("diff", "plans", "deploy.yaml", "--format", "json").stdout)
    assert (answer["verdict"], answer["plans"][0]["rolls"], answer["refused"]) == ("removed", [], [])


def test_a_fault_is_no_answer(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr("kvplan.cli.commands.diff.compared", broken)
    said = run("diff", "plans", "plans")
    assert (said.exit_code, "a fault" in said.stderr) == (70, True)


def test_a_changed_text_is_shown_from_its_first_line(repository: Path) -> None:
    text = Path("plans/mini/chat.py").read_text()
    Path("old.py").write_text(text.replace("\nWhat moves", "\nWhat is moved"))
    line = text[: text.index("\nWhat moves")].count("\n") + 2
    assert f"text: as it was → changed from line {line} on" in run("diff", "old.py", "plans/mini/chat.py").stdout


def test_python_that_is_no_plan_is_not_read(repository: Path) -> None:
    Path("tools").mkdir()
    Path("tools/links.py").write_text("import re\n")
    said = run("diff", "tools", "plans")
    assert (said.exit_code, "error[S021]: the directory 'tools' has no plans" in said.stderr) == (2, True)
    Path("tools/chat.py").write_text(Path("plans/mini/chat.py").read_text())
    assert run("diff", "tools", "tools").exit_code == 0


def test_another_format_is_one_change(repository: Path) -> None:
    text = Path("plans/mini/chat.py").read_text()
    Path("old.py").write_text(text.replace("format=", "format=9", 1))
    said = run("diff", "old.py", "plans/mini/chat.py", "--format", "json")
    assert (said.exit_code, rules(said)) == (1, {"FORMAT"})
    told = " ".join(run("diff", "old.py", "plans/mini/chat.py").stdout.split())
    unread = (
        "1 plan changes. Only the format was compared: this kvplan reads plan format 3. Compile the other plan again"
    )
    assert (unread in told, "CAUSE FORMAT format: 93 → 3 Fails" in told, "Start" in told) == (True, True, False), told


CHANGES: dict[str, Callable[[], None]] = {
    "state": lambda: edit("state: 128", "state: 64"),
    "layers": lambda: edit("layers: 8", "layers: 12"),
    "needs": lambda: edit("dim: 128}", "dim: 128, needs: {window: 512}}"),
    "dtype": lambda: edit("dtype: bf16", "dtype: f32"),
    "order": lambda: deployment(*(f'prefill: [tp=2], decode: ["tp={n},order=nhd"]' for n in (1, 2))),
    "spread": lambda: deployment(*(f"{row}, options: {{elect: spread}}" for row in PAIRS)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_answer_is_short_narrow_and_whole(repository: Path, change: str) -> None:
    deployment(*PAIRS)
    compiled("old")
    CHANGES[change]()
    compiled("new")
    said = run("diff", "old", "new").stdout
    assert len(said.splitlines()) <= 50
    for text in (said, run("diff", "old", "new", "--verbose").stdout):
        assert max(map(len, text.splitlines())) <= WIDTH
        assert all(line.count("→") <= 1 for line in text.splitlines())
        assert "->" not in text
    answer = json.loads(run("diff", "old", "new", "--format", "json").stdout)
    assert set(answer["fails"]) <= set(RULES)
    assert len(answer["plans"]) == sum(answer["summary"][kind] for kind in ("changed", "new", "gone", "renamed"))


def test_annotations(repository: Path) -> None:
    edit("state: 128", "state: 64")
    lines = run("diff", "git:HEAD:plans", "deploy.yaml", "--format", "github").stdout.splitlines()
    assert lines[0].startswith("::notice title=kvplan diff::2 plans change")
    assert [line.partition("::EXTENT")[0] for line in lines[1:]] == [
        "::error file=plans/mini/chat.py,title=LAYOUT%2C COST",
        "::error file=plans/mini/p_tp2__d_tp1.py,title=LAYOUT%2C COST",
    ]
    compiled()
    lines = run("diff", "git:HEAD", "plans", "--format", "github", "--fail-on", "PAIR").stdout.splitlines()
    assert lines[1].startswith("::notice file=plans/mini/chat.py,title=LAYOUT%2C COST::EXTENT")
    git("commit", "-qam", "state")
    lines = run("diff", "git:HEAD~1", "git:HEAD:plans", "--format", "github").stdout.splitlines()
    assert lines[1].startswith("::error file=plans/mini/chat.py,")


def test_junit(repository: Path) -> None:
    edit("decode: [tp=1]", 'decode: ["tp=1,block=32"]', "deploy.yaml")
    edit("name: chat, prefill: [tp=2]", 'name: chat, prefill: ["tp=2,groups=by_cache"]', "deploy.yaml")
    suites = ElementTree.fromstring(
        run("diff", "plans", "deploy.yaml", "--format", "junit", "--fail-on", "BLOCK_TOKENS").stdout
    )
    cases = {case.get("name"): case for case in suites.iter("testcase")}
    assert {*cases} == {"chat", "p_tp2__d_tp1"}
    assert int(suites.get("failures", 0)) == len(suites.findall(".//failure"))
    failures = {name: case.find("failure") for name, case in cases.items()}
    assert failures["chat"] is None
    failed = failures["p_tp2__d_tp1"]
    assert failed is not None
    assert failed.get("message", "").startswith("Only decode changes.")
    assert not {*(failed.text or "").splitlines()} & {*cases["p_tp2__d_tp1"].findtext("system-out", "").splitlines()}


def test_markdown(repository: Path) -> None:
    edit("state: 128", "state: 64")
    said = run("diff", "git:HEAD:plans", "deploy.yaml", "--format", "markdown").stdout
    assert said.startswith("### Plans: 2 plans change.\n\n**Roll out both sides")
    assert "- `mine/mini.yaml`: `mamba.state` `128` → `64`" in said
    table = [line for line in said.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {5}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_every_rule_is_explained(rule: str) -> None:
    said = run("explain", rule)
    assert (said.exit_code, RULES[rule].sentence in said.stdout) == (0, True)
    told = " ".join(said.stdout.split())
    assert f"Category {RULES[rule].category}: {MEANINGS[RULES[rule].category].text}." in told
    assert f"What to do: {RULES[rule].todo}" in told


@pytest.mark.parametrize("word", ["READS", "READERS", "STAGES", "TOLD", "PAGE_BYTES", "PLAN", "LAYOUT"])
def test_advice_is_to_follow_the_verdict(word: str) -> None:
    """Both plans stay in the index while engines restart; only the verdict `reload` replaces the old one."""
    said = " ".join(run("explain", word).stdout.split())
    assert "What to do: Follow the verdict of `kvplan diff`." in said
    assert "Replace the old plan" not in said
    assert "Replace the old plan" in " ".join(run("explain", "reload").stdout.split())


@pytest.mark.parametrize("word", ["EXTENT", "NEEDS"])
def test_advice_about_numbers_of_a_model_is_to_compare_its_file(word: str) -> None:
    said = " ".join(run("explain", word).stdout.split())
    assert "a model's file with its checkpoint (`kvplan doctor --layout`). Follow the verdict" in said


@pytest.mark.parametrize("word", [*MEANINGS, *VERDICTS])
def test_every_word_of_an_answer_is_explained(word: str) -> None:
    """Categories with their rules; all are in the glossary, too."""
    said = run("explain", word)
    meaning = MEANINGS[Category(word)].text if word in MEANINGS else VERDICTS[RolloutVerdict(word)]
    assert (said.exit_code, meaning in " ".join(said.stdout.split())) == (0, True)
    assert {rule.id for rule in RULES.values() if rule.category == word} <= set(
        re.findall(r"^([A-Z_]+):", said.stdout, re.M)
    )
    assert f"`{word}`" in codes.words()["category" if word in MEANINGS else "verdict"]


def test_the_page_of_a_file_that_is_no_mapping_says_how_exceptions_begin(repository: Path) -> None:
    Path("kvplan-diff.yaml").write_text("- rule: LAYOUT\n")
    assert "error[Y013]" in run("diff", "plans", "plans").stderr
    assert "kvplan-diff.yaml one that begins with `accept:`" in " ".join(run("explain", "Y013").stdout.split())


def test_a_file_of_exceptions_has_no_version(repository: Path) -> None:
    Path("kvplan-diff.yaml").write_text("kvplan: 1\naccept: []\n")
    said = run("diff", "git:HEAD", "plans")
    assert (said.exit_code, "error[K001]" in said.stderr) == (2, True)
    assert "a file of exceptions begins with 'accept:'" in said.stderr


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_an_option_that_the_engine_raises_is_explained(repository: Path, form: str) -> None:
    """Its block holds a state: a reader of `block: 1024` and of 2,048 tokens has to know why."""
    edit("heads: 8, dim: 128", "heads: 2, dim: 128")
    compiled()
    edit("decode: [tp=2]", "decode: ['tp=2,block=1024']", "deploy.yaml")
    said = " ".join(run("diff", "plans", "deploy.yaml", "--format", form).stdout.split())
    assert said.count("block=1024, tokens of a block before a hybrid raises it, --block-size: blocks of attention") == 1
    assert "attention have 2,048 tokens" in said


def test_an_option_that_is_taken_as_it_is_needs_no_word(repository: Path) -> None:
    edit("decode: [tp=2]", "decode: ['tp=2,block=4192']", "deploy.yaml")
    assert "raises it" not in run("diff", "git:HEAD:plans", "deploy.yaml").stdout


def test_the_verdict_and_the_engine_spell_a_value_alike(repository: Path) -> None:
    edit("decode: [tp=2]", 'decode: ["tp=2,order=nhd"]', "deploy.yaml")
    said = run("diff", "git:HEAD:plans", "deploy.yaml").stdout
    assert ("restart decode with VLLM_KV_CACHE_LAYOUT=LBNHC." in said, "order=nhd" in said) == (True, False)
    assert "order: LBHNC (hnd, default) → LBNHC (nhd)" in said


def test_one_run_has_a_review_beside_the_annotations(repository: Path) -> None:
    edit("state: 128", "state: 64")
    words = ["diff", "git:HEAD:plans", "deploy.yaml", "--format"]
    said = run(*words, "github", "--review", "review.md")
    assert (said.exit_code, said.stdout) == (1, run(*words, "github").stdout)
    assert Path("review.md").read_text() == run(*words, "markdown").stdout


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_the_file_of_an_own_engine_may_be_the_cause(repository: Path, form: str) -> None:
    """Its change is no number of a model: without its folder nobody can say more than that."""
    engine = Path("mine/ours.yaml")
    engine.write_text("kvplan: 1\nengine: ours\nextends: vllm\ntitle: T\noptions: {block: {default: 16}}\n")
    edit("decode: [tp=2]", 'decode: ["engine=ours,tp=2"]', "deploy.yaml")
    words = ["deploy.yaml", "-o", "plans", "--layouts", "mine"]
    assert run("compile", *words).exit_code == 0
    git("add", ".")
    git("commit", "-qm", "engine")
    edit("default: 16", "default: 4192", str(engine))
    assert run("compile", *words).exit_code == 0
    said = " ".join(run("diff", "git:HEAD", "plans", "--format", form).stdout.split())
    assert ("ayout files were not compared: give --layouts DIR" in said, "or kvplan itself" in said) == (True, False)
    said = run("diff", "git:HEAD", "plans", "--layouts", "mine").stdout
    assert "  mine/ours.yaml: options.block.default: 16 → 4192" in said.splitlines()


def printed(said: str) -> list[list[str]]:
    """The words of each printed `kvplan advise`."""
    return [shlex.split(one) for one in re.findall(r"kvplan (advise [^;]*? --layouts mine)\b", " ".join(said.split()))]


def test_the_printed_command_measures_what_cost_measured(repository: Path) -> None:
    """A window longer than the usual request, and a pair with a strategy of its own."""
    mini = (
        MINI.partition("caches:")[0] + "caches:\n  local: {kind: gqa, layers: all, heads: 8, dim: 128, window: 3000}\n"
    )
    Path("mine/mini.yaml").write_text(mini)
    row = "  - {{name: chat, models: [mine/mini.yaml], prefill: [tp=2], decode: [{}], options: {}}}\n"
    head = "kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n"
    options = "{strategy: auto, machine: rdma-400g}"
    Path("deploy.yaml").write_text(head + row.format("tp=1", options))
    compiled("old")
    Path("deploy.yaml").write_text(head + row.format('"tp=1,order=nhd,block=4192"', options))
    said = run("diff", "old", "deploy.yaml").stdout
    found = printed(said)
    assert len(found) == 2, said
    counted = {int(count.replace(",", "")) for count in re.findall(r"per (?:decode )?worker and ([\d,]+) tokens", said)}
    assert counted == {6144}
    for words in found:
        assert " ".join(words).partition("--machine ")[2].startswith("rdma-400g --strategy auto --tokens 6144 ")
        answer = run(*words, "--format", "json")
        assert answer.exit_code == 0, answer.output
        now = json.loads(answer.stdout)["machines"][0]["now"]
        assert f"{now['descriptors']:,}" in said


@pytest.mark.parametrize(
    ("prefill", "decode", "steps"), [("tp=2", "tp=1", 3), ("tp=1", "tp=1", 3), ("tp=2", "tp=2", 2)]
)
def test_another_engine_is_asked_by_the_router_in_its_own_way(
    repository: Path, prefill: str, decode: str, steps: int
) -> None:
    """Bytes alone would do: with the old router no request of the new engine works."""
    head = "kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n"
    row = "  - {{name: a, models: [qwen3-0.6b], prefill: [{}], decode: [{}]}}\n"
    Path("deploy.yaml").write_text(head + row.format("tp=2", "tp=1"))
    compiled("old")
    engine = "engine=sglang," if steps == 3 else ""
    Path("deploy.yaml").write_text(head + row.format(prefill, f'"{engine}{decode}"'))
    said = " ".join(run("diff", "old", "deploy.yaml").stdout.split())
    assert ("  3. Change the router" in run("diff", "old", "deploy.yaml").stdout) == (steps == 3)
    assert ("mixed.md#the-router" in said) == (steps == 3)


def test_the_router_asks_another_release_of_one_package_likewise(repository: Path) -> None:
    edit("prefill: [tp=2], decode: [tp=1]", "name: a, prefill: [tp=2], decode: [tp=1]", "deploy.yaml")
    compiled("old")
    edit("decode: [tp=1]", "decode: ['engine=vllm-legacy,tp=1']", "deploy.yaml")
    said = run("diff", "old", "deploy.yaml").stdout
    assert ("engine=vllm-legacy" in said, "Change the router" in said) == (True, False)


@pytest.mark.parametrize(
    ("damage", "rule"),
    [("comment", "FILE_TEXT"), ("index", "PAIR_NEW"), ("pin", "")],
)
def test_a_base_that_engines_refuse_is_compared_with_a_warning(repository: Path, damage: str, rule: str) -> None:
    """Nobody can correct a merged revision: later changes, and the one that repairs it, still have an answer."""
    plan, index = Path("plans/mini/chat.py"), Path("plans/index.json")
    if damage == "comment":
        edit("A span is contiguous", "A span is adjacent", str(plan))
    if damage == "index":
        index.write_text("<<<<<<< HEAD\n")
        plan.unlink()
    if damage == "pin":
        index.write_text(re.sub('"sha256": "....', '"sha256": "0000', index.read_text()))
    git("commit", "-qam", "damaged")
    git("tag", "base")
    index.unlink()
    compiled()
    named = "base:plans/index.json is no JSON" if damage == "index" else "base:plans/mini/chat.py"
    for form in FORMATS:
        said = run("diff", "git:base:plans", "deploy.yaml", "--format", form, "--review", "review.md")
        assert (said.exit_code, named in " ".join(said.stdout.split())) == (0, True), said.output
        assert f"in OLD, {named}" in Path("review.md").read_text()
    assert rules(run("diff", "git:base:plans", "deploy.yaml", "--format", "json")) >= {*filter(None, [rule])}


@pytest.mark.parametrize("damage", ["number", "missing", "empty"])
def test_a_base_whose_plan_cannot_be_read_is_refused(repository: Path, damage: str) -> None:
    """Left out of the comparison, its pair would count as new, and a change of its page would pass."""
    plan = Path("plans/mini/chat.py")
    number = re.sub(r"bytes=(\d+)_", r"bytes=7\1_", plan.read_text(), count=1)
    plan.write_text(number if damage == "number" else "")
    if damage == "missing":
        plan.unlink()
    git("commit", "-qam", "damaged")
    compiled()
    said = run("diff", "git:HEAD:plans", "deploy.yaml")
    assert (said.exit_code, "compare with another revision" in " ".join(said.stderr.split())) == (2, True)


def test_a_damaged_index_of_a_revision_is_named_with_it(repository: Path) -> None:
    """A reader who removes a file removes the good one of the working tree."""
    Path("plans/index.json").write_text("<<<<<<< HEAD\n")
    git("commit", "-qam", "damaged")
    said = " ".join(run("diff", "git:HEAD~1:plans", "git:HEAD:plans").stderr.split())
    assert "error[R006]: HEAD:plans/index.json is no JSON" in said
    assert ("remove it" in said, "compare with another revision" in said) == (False, True)
