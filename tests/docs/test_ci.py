"""The GitHub action and the pre-commit hooks, run on a small repository: a change that may be, one that may not."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from tests.paths import ROOT

from kvplan.cli.main import main

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
BASH = shutil.which("bash")
TEXT = {"type": "string", "minLength": 1}
# GitHub's rules for composite actions (docs.github.com, metadata syntax), as far as this one needs them.
SCHEMA = {
    "type": "object",
    "required": ["name", "description", "runs"],
    "additionalProperties": False,
    "properties": {
        "name": TEXT,
        "description": TEXT,
        "author": TEXT,
        "branding": {
            "type": "object",
            "properties": {"icon": TEXT, "color": {"enum": ["white", "yellow", "blue", "green", "orange", "red"]}},
            "additionalProperties": False,
        },
        "inputs": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["description"],
                "additionalProperties": False,
                "properties": {
                    "description": TEXT,
                    "required": {"type": "boolean"},
                    "default": {"type": "string"},
                },
            },
        },
        "outputs": {
            "type": "object",
            "additionalProperties": {
                "type": "object",
                "required": ["description", "value"],
                "additionalProperties": False,
                "properties": {"description": TEXT, "value": TEXT},
            },
        },
        "runs": {
            "type": "object",
            "required": ["using", "steps"],
            "additionalProperties": False,
            "properties": {
                "using": {"const": "composite"},
                "steps": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "type": "object",
                        "required": ["run", "shell"],
                        "additionalProperties": False,
                        "properties": {
                            "name": TEXT,
                            "id": {"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_-]*$"},
                            "if": TEXT,
                            "shell": {"const": "bash"},
                            "run": TEXT,
                            "env": {"type": "object", "additionalProperties": {"type": "string"}},
                        },
                    },
                },
            },
        },
    },
}
GH = """#!/bin/sh
echo "$@" >> "$CALLS"
case "$*" in *--jq*) echo "$OLD_COMMENT";; esac
"""


OURS = """kvplan: 1
model: ours
title: Ours
dtype: bf16
layers: 2
caches:
  attention: {kind: gqa, layers: all, heads: 8, dim: 128}
"""


def git(folder: Path, *words: str) -> str:
    words = ("git", "-C", str(folder), "-c", "user.name=t", "-c", "user.email=t@t", *words)
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def deployment(folder: Path, decode: str) -> None:
    pairs = {"chat": decode, "batch": "tp=2"}
    rows = [f'{{name: {name}, models: [ours], prefill: [tp=2], decode: ["{side}"]}}' for name, side in pairs.items()]
    entries = "".join(f"  - {row}\n" for row in rows)
    (folder / "deploy.yaml").write_text(f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n{entries}")


def compiled(folder: Path) -> None:
    words = ["compile", str(folder / "deploy.yaml"), "-o", str(folder / "plans"), "--layouts", str(folder / "layouts")]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A deployment of a model of its own, with its plans, committed."""
    folder = tmp_path / "repository"
    (folder / "layouts").mkdir(parents=True)
    (folder / "layouts" / "ours.yaml").write_text(OURS)
    deployment(folder, "tp=1")
    compiled(folder)
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "plans")
    return folder


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which `kvplan` is the one under test, and `gh` writes down how it is called."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "kvplan").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kvplan.cli "$@"\n')
    (tools / "gh").write_text(GH)
    for tool in tools.iterdir():
        tool.chmod(0o755)
    return f"{tools}{os.pathsep}{os.environ['PATH']}"


def test_the_action_has_the_form_that_github_reads() -> None:
    jsonschema.validate(ACTION, SCHEMA)
    given = set(re.findall(r"inputs\.([a-z-]+)", (ROOT / "action.yml").read_text()))
    assert given == set(ACTION["inputs"])


def test_no_input_is_part_of_a_script() -> None:
    """Foreign text comes in through the environment, which no shell parses."""
    assert not [step["name"] for step in ACTION["runs"]["steps"] if "${{" in step["run"]]


class Runner:
    """GitHub's runner, as far as the action needs one: expressions, outputs, conditions of its steps."""

    def __init__(self, folder: Path, work: Path, path: str, **inputs: str) -> None:
        self.folder, self.work = folder, work
        self.values = {
            "github.repository": "o/r",
            "github.event_name": "pull_request",
            "github.event.pull_request.number": "7",
            **{f"inputs.{name}": str(given.get("default", "")) for name, given in ACTION["inputs"].items()},
            **{f"inputs.{name.replace('_', '-')}": value for name, value in inputs.items()},
        }
        self.environment = {**os.environ, "PATH": path, "RUNNER_TEMP": str(work), "CALLS": str(work / "calls")}
        self.environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OLD_COMMENT": ""}
        self.said = ""

    def run(self) -> int:
        for step in ACTION["runs"]["steps"]:
            if self.holds(step.get("if", "")) and (code := self.step(step)):
                return code
        return 0

    def step(self, step: Mapping[str, Any]) -> int:
        output, summary = self.work / "output", self.work / "summary"
        output.write_text("")
        own = {name: self.filled(text) for name, text in step.get("env", {}).items()}
        files = {"GITHUB_OUTPUT": str(output), "GITHUB_STEP_SUMMARY": str(summary)}
        shell = [str(BASH), "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            shell,
            cwd=self.folder,
            env={**self.environment, **own, **files},
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.said += done.stdout + done.stderr
        for line in output.read_text().splitlines():
            name, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{name}"] = value
        return done.returncode

    def filled(self, text: str) -> str:
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda found: self.values[found[1]], text)

    def holds(self, condition: str) -> bool:
        """`a == 'b' && c != ''`."""
        for part in filter(None, condition.split(" && ")):
            name, operator, word = part.split(" ")
            if (self.values.get(name, "") == word.strip("'")) != (operator == "=="):
                return False
        return True


@pytest.fixture
def runner(repository: Path, tmp_path: Path, path: str) -> Runner:
    if BASH is None:
        pytest.skip("bash is not installed")
    base = git(repository, "rev-parse", "HEAD")
    own = {"deployment": "deploy.yaml", "layouts": "layouts", "base": base}
    return Runner(repository, tmp_path, path, **own, install="", token="t")


def test_the_action_passes_where_nothing_changes(runner: Runner, tmp_path: Path) -> None:
    assert runner.run() == 0, runner.said
    assert "::notice title=kvplan diff::no plan changes" in runner.said
    assert (tmp_path / "summary").read_text().startswith("<!-- kvplan: deploy.yaml -->\n### Plans: no plan changes")


def test_the_action_fails_where_a_page_moves(runner: Runner, tmp_path: Path) -> None:
    deployment(runner.folder, "tp=1,block=32")
    compiled(runner.folder)
    assert runner.run() == 1
    assert "::error file=plans/ours/chat.py,title=LAYOUT" in runner.said
    assert "`BLOCK_TOKENS`" in (tmp_path / "summary").read_text()
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls[-1].startswith("api --silent --method POST repos/o/r/issues/7/comments --field body=@")
    runner.environment["OLD_COMMENT"] = "99"
    runner.values["inputs.fail-on"] = "AXIS_ORDER COST"
    runner.values["inputs.cost-growth"] = "300%"
    assert runner.run() == 0, runner.said
    assert "--method PATCH repos/o/r/issues/comments/99" in (tmp_path / "calls").read_text()


def test_the_action_reviews_plans_that_nobody_committed(runner: Runner, tmp_path: Path) -> None:
    deployment(runner.folder, "tp=1,block=32")
    assert runner.run() == 1
    assert "::error::the committed plans are not those of the deployment" in runner.said
    assert "::error file=plans/ours/chat.py,title=LAYOUT" in runner.said
    summary = (tmp_path / "summary").read_text()
    assert "`BLOCK_TOKENS`" in summary
    assert "2 plans: 1 stale, 1 up to date" in summary
    assert "the same command" not in summary, "one command repairs it"
    assert "```diff" not in summary
    assert summary.index("### The committed plans are not those") < summary.index("### Plans: ")
    assert "\nnot what the deployment compiles to: plans/ours/chat.py\n" in summary
    assert "\nto write them: kvplan compile deploy.yaml -o plans --layouts layouts --prune" in summary


def test_the_action_shows_what_somebody_edited_by_hand(runner: Runner, tmp_path: Path) -> None:
    """The review has nothing to show: the deployment changes no plan."""
    plan = runner.folder / "plans" / "ours" / "chat.py"
    plan.write_text(plan.read_text().replace("A span is contiguous", "A span is adjacent"))
    assert runner.run() == 1
    summary = (tmp_path / "summary").read_text()
    assert "```diff\n--- plans/ours/chat.py (on disk)\n" in summary
    assert "A span is adjacent" in summary
    assert summary.count("to write them: ") == 1


def test_the_action_says_why_the_committed_plans_cannot_be_compared(runner: Runner, tmp_path: Path) -> None:
    """A merge conflict in the index, which the review does not read: the deployment changes no plan."""
    index = runner.folder / "plans" / "index.json"
    index.write_text("<<<<<<< HEAD\n" + index.read_text())
    assert runner.run() != 0
    summary = (tmp_path / "summary").read_text()
    assert "### The committed plans cannot be compared with the deployment\n" in summary
    assert "error[R006]" in summary


def test_the_command_of_the_action_makes_it_pass_once_a_pair_is_removed(runner: Runner, tmp_path: Path) -> None:
    """The plan of that pair goes, too."""
    edited = (runner.folder / "deploy.yaml").read_text().splitlines(keepends=True)
    (runner.folder / "deploy.yaml").write_text("".join(line for line in edited if "batch" not in line))
    assert runner.run() == 1
    command = re.search(r"^to write them: (.*)$", (tmp_path / "summary").read_text(), re.MULTILINE)
    assert command
    subprocess.run(command[1], shell=True, cwd=runner.folder, env=runner.environment, check=True, capture_output=True)
    runner.values["inputs.fail-on"] = "LAYOUT"
    assert runner.run() == 0, runner.said


def test_an_error_takes_the_place_of_an_earlier_review(runner: Runner, tmp_path: Path) -> None:
    """It would stay on the pull request, and look current."""
    deployment(runner.folder, "tp=1,order=ndh")
    assert runner.run() == 2
    assert "::error file=deploy.yaml,line=5," in runner.said
    summary = (tmp_path / "summary").read_text()
    assert summary.startswith("<!-- kvplan: deploy.yaml -->\n### Plans: kvplan diff has no answer\n")
    assert "error[S009]" in summary
    assert "::error" not in summary
    assert "--field body=@" in (tmp_path / "calls").read_text()


@pytest.mark.full
def test_the_action_names_stale_plans_beside_a_refused_pair(runner: Runner, tmp_path: Path) -> None:
    deployment(runner.folder, "tp=3")
    edited = (runner.folder / "deploy.yaml").read_text().replace('["tp=2"]', '["tp=2,block=32"]')
    (runner.folder / "deploy.yaml").write_text(edited)
    assert runner.run() == 3
    assert "\nnot what the deployment compiles to: plans/ours/batch.py\n" in (tmp_path / "summary").read_text()


def test_the_action_names_a_refused_pair_with_its_reason(runner: Runner, tmp_path: Path) -> None:
    """Compiling again does not help, so the action does not ask for it."""
    deployment(runner.folder, "tp=3")
    assert runner.run() == 3
    assert "::error file=deploy.yaml,line=5,title=C110::deploy.yaml:5: ours/chat (ours: tp=2 -> tp=3) is" in runner.said
    assert "::error::a pair of the deployment is refused" in runner.said
    assert "not those of the deployment" not in runner.said
    summary = (tmp_path / "summary").read_text()
    assert "ours/chat (ours: tp=2 -> tp=3) is refused (C110)" in summary
    assert "--field body=@" in (tmp_path / "calls").read_text()


def test_the_action_fails_for_engines_that_refuse_each_other(runner: Runner) -> None:
    """The same bytes move, and yet no old engine talks with a new one."""
    edited = (runner.folder / "deploy.yaml").read_text().replace('["tp=1"]', '["tp=1"], options: {elect: spread}')
    (runner.folder / "deploy.yaml").write_text(edited)
    compiled(runner.folder)
    assert runner.run() == 1
    assert "Roll out both sides together" in runner.said
    assert "::error file=plans/ours/chat.py,title=PLAN" in runner.said


def test_the_first_plans_of_a_repository_pass(runner: Runner, tmp_path: Path) -> None:
    git(runner.folder, "rm", "-rq", "--cached", "plans")
    git(runner.folder, "commit", "-qm", "no plans")
    runner.values["inputs.base"] = git(runner.folder, "rev-parse", "HEAD")
    assert runner.run() == 0, runner.said
    assert "All plans are new: OLD has none." in (tmp_path / "summary").read_text()
    shutil.rmtree(runner.folder / "plans")
    (tmp_path / "summary").unlink()
    assert runner.run() == 1, "nobody committed them"
    assert "All plans are new: OLD has none." in (tmp_path / "summary").read_text()
    assert "::error::the committed plans are not those of the deployment" in runner.said


@pytest.mark.full
@pytest.mark.parametrize("indexed", [True, False])
def test_plans_that_move_are_not_new(runner: Runner, indexed: bool) -> None:
    if not indexed:
        git(runner.folder, "rm", "-q", "plans/index.json")
        git(runner.folder, "commit", "-qm", "no index")
        runner.values["inputs.base"] = git(runner.folder, "rev-parse", "HEAD")
    deployment(runner.folder, "tp=1,block=32")
    compiled(runner.folder)
    git(runner.folder, "mv", "plans", "plans2")
    runner.values["inputs.plans"] = "plans2"
    assert runner.run() == 2
    assert "::error::kvplan diff has no answer" in runner.said
    assert f"git:{runner.values['inputs.base']}:plans" in runner.said


def test_a_base_that_is_not_there_is_no_pass(runner: Runner) -> None:
    runner.values["inputs.base"] = "0" * 40
    assert runner.run() not in (0, 1)


@pytest.mark.full
def test_hooks_let_a_change_pass_once_it_is_accepted(repository: Path, tmp_path: Path, path: str) -> None:
    """pre-commit itself, which makes no environments here: `kvplan` is the one under test."""
    pytest.importorskip("pre_commit", reason="pre-commit is not installed")
    source = tmp_path / "hooks"
    source.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", source)
    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-qm", "hooks")
    layouts = ["--layouts", "layouts"]
    arguments = {
        "kvplan-compile": ["deploy.yaml", "-o", "plans", *layouts],
        "kvplan-diff": ["git:HEAD", "plans", *layouts, "--cost-growth", "10%"],
    }
    assert {hook["id"] for hook in HOOKS} == set(arguments)
    hooks = [{"id": name, "args": words, "language": "system"} for name, words in arguments.items()]
    entry = {"repo": str(source), "rev": git(source, "rev-parse", "HEAD"), "hooks": hooks}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [entry]}))
    environment = {**os.environ, "PATH": path, "PRE_COMMIT_HOME": str(tmp_path / "home")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    words = [sys.executable, "-m", "pre_commit"]
    subprocess.run([*words, "install"], cwd=repository, env=environment, check=True, capture_output=True)

    def commit() -> tuple[int, int, str]:
        """The exit code of a commit of all that is there, how many hooks pass, and what they print."""
        git(repository, "add", "--all")
        words = ["git", "-c", "user.name=t", "-c", "user.email=t@t", "commit", "-m", "change"]
        done = subprocess.run(words, cwd=repository, env=environment, capture_output=True, text=True, timeout=300)
        said = done.stdout + done.stderr
        return done.returncode, said.count("Passed"), said

    code, passed, said = commit()
    assert (code, passed) == (0, 2), said
    deployment(repository, "tp=1,block=32")
    code, passed, said = commit()
    assert (code, passed, "1 stale" in said) == (1, 1, True), said
    compiled(repository)
    code, passed, said = commit()
    assert (code, passed, "BLOCK_TOKENS" in said) == (1, 1, True), said
    accepted = re.search(r"^  (- \{rule: .*?)\"WHY\"\}$", said, re.MULTILINE | re.DOTALL)
    assert accepted, said
    (repository / "kvplan-diff.yaml").write_text(f"accept:\n  {accepted[1]}blocks of 32 from Monday on}}\n")
    code, passed, said = commit()
    assert (code, passed) == (0, 2), said
    (repository / "plans" / "ours" / "batch.py").unlink()
    code, passed, said = commit()
    assert (code, "plans/ours/batch.py is missing, but index.json lists it" in said) == (1, True), said
