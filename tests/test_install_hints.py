"""Packages in errors and pages exist, brackets reach the reader, and a build leaves nothing behind."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests.paths import CODE, DOCS, ROOT

from kvplan.bench.report import Row, as_table
from kvplan.cli.terminal import console

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = [file for room in ("bench", *CODE) for file in (ROOT / room).rglob("*.py")]
PAGES = [ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "cli").rglob("*.md")]
EXTRA = re.compile(r"(?:kvplan|\.|/src)\[([a-z,{}]+)\]")
HINT = "pip install '.[store]'"


def test_extras_that_are_named_exist() -> None:
    found = [(file.name, group) for file in (*FILES, *PAGES) for group in EXTRA.findall(file.read_text())]
    named = {(file, name) for file, group in found for name in group.split(",")}
    assert {name for _, name in named} >= {"vllm", "registry", "metrics"}
    assert [each for each in named if each[1] not in PROJECT["optional-dependencies"] and "{" not in each[1]] == []


def test_nothing_tells_to_install_nixl_with_torch() -> None:
    hint = re.compile(r"pip install '(?:kvplan|\.)\[nixl\]'")
    told = [file.name for file in (*FILES, *PAGES) if hint.search(file.read_text())]
    assert told == []


def test_brackets_are_printed_as_they_are() -> None:
    out = io.StringIO()
    row = Row(area="area [x]", name="a row [y]", value=HINT, spread="", pairs=0, target="", met=None)
    console(file=out, width=200).print(HINT, as_table([row]))
    assert (out.getvalue().count(HINT), "area [x]" in out.getvalue(), "[y]" in out.getvalue()) == (2, True, True)


def test_consoles_are_made_in_one_place_and_columns_have_no_markup() -> None:
    made = {file.name for file in FILES if re.search(r"(?<!\w)Console\(", file.read_text())}
    assert made == {"terminal.py"}
    columns = [line for file in FILES for line in re.findall(r"TextColumn\([^()]*\)", file.read_text())]
    assert columns
    assert [line for line in columns if "markup=False" not in line] == []


@pytest.mark.full
def test_a_build_leaves_no_folder_in_the_clone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    shutil.copytree(ROOT, clone, symlinks=True, ignore=shutil.ignore_patterns(".*", "__pycache__", "tests", "build"))
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-q", "-w", str(tmp_path), str(clone)]
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *build], check=True, cwd=tmp_path)
    assert list(tmp_path.glob("*.whl"))
    assert not (clone / "build").exists()
