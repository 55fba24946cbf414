"""The command in a plan's header: a shell takes it as it stands, and it makes the plan again."""

from __future__ import annotations

import ast
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.plan.files.loader import load_plan

PLANS = sorted((ROOT / "examples/plans").glob("*/*.py"))
# Several lines, an option beside the sides, layout files that do not come with kvplan.
RUN = (
    "rings/p_custom_tp2__d_custom_tp1.py",
    "llama_3_1_8b/hnd_nhd.py",
    "nemotron_3_nano_30b/p_tp4_fp8_kernel_block16__d_tp1_fp8_kernel_block16.py",
)
SHELL = """kvplan() { printf '%s\\0' "$@"; }
"""


def pasted(path: Path) -> list[str]:
    """The words that a shell makes of the indented lines below "make it again"."""
    header = ast.get_docstring(ast.parse(path.read_text())) or ""
    _, _, rest = header.partition("make it again")
    lines = rest.partition(":\n")[2].partition("\n\n")[0]
    done = subprocess.run(["bash", "-euc", SHELL + lines], capture_output=True, text=True, check=True)
    return done.stdout.removesuffix("\0").split("\0")


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_a_shell_takes_it_as_it_stands(path: Path) -> None:
    plan, words = load_plan(path), pasted(path)
    asked = ["compile", plan.model, "--prefill", plan.prefill.key, "--decode", plan.decode.key]
    assert words[:6] == asked
    assert set(words[6::2]) <= {"--elect", "--strategy", "--machine", "--layouts"}


@pytest.mark.parametrize("name", RUN)
def test_it_makes_the_plan_again(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "examples/plans" / name
    shutil.copytree(ROOT / "examples/models", tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    words = pasted(path)
    told = "In the folder of its layout files, this compiles" in " ".join(path.read_text().split())
    assert told == ("--layouts" in words)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    (made,) = Path("plans").glob("*/*.py")
    assert made.read_text() == path.read_text()
