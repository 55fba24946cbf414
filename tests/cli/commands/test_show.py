"""kvplan show: what it takes, what it writes, and that a page needs nothing but itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.cli.page.assemble import SCRIPTS, page

PLANS = ROOT / "examples/plans/llama_3_1_8b"
PAIR = ["llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2"]


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["show", *words])


def data(path: Path) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found
    return json.loads(found[1])


def test_a_pair_is_a_page_of_its_plan(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    done = run(*PAIR, "-o", str(out))
    assert done.exit_code == 0
    assert done.stdout == f"wrote {out}, {out.stat().st_size:,} B\n"
    said = data(out)
    assert said["command"] == "kvplan show llama-3.1-8b --prefill tp=4 --decode tp=2"
    assert "<title>Llama 3.1 8B: tp=4 to tp=2</title>" in out.read_text()
    explained = json.loads(CliRunner().invoke(main, ["explain", *PAIR, "--format", "json"]).stdout)
    shared = ("title", "digests", "options", "group_pairs", "moves", "notifications", "notes", "proof", "strategy")
    assert {name: said["plan"][name] for name in shared} == {name: explained[name] for name in shared}
    assert sum(read["bytes"] for read in said["plan"]["reads"][0]) == explained["moves"][0]["bytes"]


def test_a_plan_on_disk_is_the_same_page(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "a.html", tmp_path / "b.html"
    run(*PAIR, "-o", str(ours))
    run(str(PLANS / "p_tp4__d_tp2.py"), "-o", str(theirs))
    assert data(ours)["plan"] == data(theirs)["plan"]


def test_several_pairs_are_what_matrix_says(tmp_path: Path) -> None:
    sides = ["--prefill", "tp=1/2", "--decode", "tp=1/3"]
    out = tmp_path / "page.html"
    assert run("llama-3.1-8b", *sides, "-o", str(out)).exit_code == 0
    said = json.loads(CliRunner().invoke(main, ["matrix", "llama-3.1-8b", *sides, "--format", "json"]).stdout)
    assert data(out)["matrix"] == {**said, "title": "Llama 3.1 8B"}


def test_a_model_alone_is_shown_on_usual_sides(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    assert run("qwen3-0.6b", "-o", str(out)).exit_code == 0
    assert len(data(out)["matrix"]["cells"]) == 16


def test_a_change_has_both_plans(tmp_path: Path) -> None:
    before, after = PLANS / "p_tp4__d_tp2.py", PLANS / "p_tp4__d_tp4.py"
    out = tmp_path / "page.html"
    assert run(str(after), "--before", str(before), "-o", str(out)).exit_code == 0
    said = data(out)
    assert (said["before"]["sides"][1]["side"], said["plan"]["sides"][1]["side"]) == ("tp=2", "tp=4")
    assert said["change"]["verdict"].startswith("Only decode changes.")
    blocks = dict(said["change"]["blocks"])
    assert list(blocks) == ["CAUSE", "WHAT FOLLOWS", "COST of the busiest worker of each pair"]
    assert ["OPTION", "tp: 2 → 4"] in blocks["CAUSE"]
    assert len(blocks["WHAT FOLLOWS"]) < 12, "what follows from others is no line of its own"


def test_a_change_is_told_as_diff_tells_it(tmp_path: Path) -> None:
    before, after = PLANS / "p_tp4__d_tp2.py", PLANS / "p_tp4__d_tp2_lbnhc.py"
    assert run(str(after), "--before", str(before), "-o", str(tmp_path / "page.html")).exit_code == 0
    told = CliRunner().invoke(main, ["diff", str(before), str(after)]).output
    words = " ".join(told.split())
    for heading, changes in data(tmp_path / "page.html")["change"]["blocks"]:
        assert heading in words
        for rule, text in changes:
            assert f"{rule} {text}".strip() in words


def test_a_revision_has_the_plan_under_the_name_that_diff_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is named by its sides has another name once these change."""
    monkeypatch.chdir(tmp_path)
    compiled = ["compile", "qwen3-0.6b", "--decode", "tp=2", "--prefill"]
    assert CliRunner().invoke(main, [*compiled, "tp=4"]).exit_code == 0
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "plans"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", *words], check=True)
    shutil.rmtree("plans")
    assert CliRunner().invoke(main, [*compiled, "tp=2"]).exit_code == 0
    plan = "plans/qwen3_0_6b/p_tp2__d_tp2.py"
    said = run(plan, "--before", "HEAD", "-o", "page.html")
    assert said.exit_code == 0, said.output
    assert data(Path("page.html"))["before"]["sides"][0]["side"] == "tp=4"
    assert ["OPTION", "tp: 4 → 2"] in dict(data(Path("page.html"))["change"]["blocks"])["CAUSE"]
    Path("other.py").write_text(Path(plan).read_text())
    for words in (["other.py", "--before", "HEAD"], [plan, "--before", "no-such"], [plan, "--before", "HEAD:gone"]):
        assert (run(*words).exit_code, "S021" in run(*words).stderr) == (2, True)


def test_the_same_plan_does_not_change(tmp_path: Path) -> None:
    plan, out = str(PLANS / "p_tp4__d_tp2.py"), tmp_path / "page.html"
    assert run(plan, "--before", plan, "-o", str(out)).exit_code == 0
    assert data(out)["change"] == {"verdict": "", "blocks": []}


@pytest.mark.parametrize("words", [["--svg"], []])
def test_a_figure(words: list[str], tmp_path: Path) -> None:
    out = tmp_path / "figure.svg"
    assert run(*PAIR, *words, "--worker", "1", "-o", str(out)).exit_code == 0
    text = out.read_text()
    assert text.startswith("<svg ")
    assert "worker 2, attention.0, 16,384 B" in text
    assert "head 7" in text
    assert "head 0" not in text, "what is not drawn is not in the legend"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere.py"], 2, "S021"),
        (["llama-3.1"], 2, "did you mean"),
        ([str(PLANS / "p_tp4__d_tp2.py"), "--prefill", "tp=1"], 2, "a plan has its own sides"),
        (["llama-3.1-8b", "--prefill", "tp=3", "--decode", "tp=1"], 3, "C110"),
        (["llama-3.1-8b", "--before", "HEAD"], 2, "--before is for one plan"),
        ([*PAIR, "--before", "nowhere"], 2, "S021"),
        ([*PAIR, "--svg", "--worker", "2"], 2, "there is no decode worker 2"),
        (["llama-3.1-8b", "--svg"], 2, "give --prefill SIDE and --decode SIDE"),
    ],
)
def test_what_cannot_be_shown(words: list[str], code: int, said: str, tmp_path: Path) -> None:
    out = tmp_path / "page"
    done = run(*words, "-o", str(out))
    assert done.exit_code == code
    assert said in done.output
    assert not out.exists()


@pytest.mark.parametrize(("words", "name", "ends"), [([], "a.png", ".html"), (["--svg"], "a.html", ".svg")])
def test_a_file_is_named_as_what_it_is(words: list[str], name: str, ends: str, tmp_path: Path) -> None:
    done = run(*PAIR, *words, "-o", str(tmp_path / name))
    assert (done.exit_code, f"end its name with {ends}" in done.output, list(tmp_path.iterdir())) == (2, True, [])


def test_a_page_loads_nothing(tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    run(*PAIR, "-o", str(out))
    text = out.read_text()
    assert "default-src 'none'" in text
    assert set(re.findall(r"\bhttps?://[^\s\"'<)]+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"\b(?:src|href)=\"(?!data:)", text)


def test_a_text_of_a_layout_is_never_markup() -> None:
    text = page("</title><b>", {"title": "</script><script>alert(1)</script>{script}"})
    assert "</title><b>" not in text
    assert "<script>alert" not in text
    assert text.count("</script>") == 2
    assert (text.count("{script}"), text.count("function el(")) == (1, 1), "what data says is put in once, as it is"


def test_a_wheel_has_every_file_of_a_page() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    files = [file for folder in ("cli/page", "compiler/explain/picture") for file in (ROOT / folder).iterdir()]
    others = [file.name for file in files if file.is_file() and file.suffix not in (".py", ".pyc")]
    assert len(others) > len(SCRIPTS)
    assert [name for name in others if not any(fnmatch(name, pattern) for pattern in patterns)] == []
    assert {name.removesuffix(".js") for name in others if name.endswith(".js")} == set(SCRIPTS)
