"""The wheel alone: what it has, what it needs, and that the commands which lived on the clone work without it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from tests.paths import ROOT

import kvplan
from kvplan.cli.commands.demo import shipped

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BACKEND = 77  # of setuptools, as pyproject.toml asks for
THIRD_PARTY = {"zmq": "pyzmq", "yaml": "pyyaml"}
# Packages of extras, which are imported inside functions.
EXTRAS = {
    "nixl",
    "nixl_cu12",
    "nixl_cu13",
    "nixl_rocm",
    "rixl",
    "torch",
    "prometheus_client",
    "opentelemetry",
    "sglang",
    "vllm",
    "packaging",
    "transformers",
    "fsspec",
    "cryptography",
    "etcd3gw",
    "requests",
    "simpy",
    "matplotlib",
    "aiohttp",
    # Comes with torch for CUDA.
    "triton",
}


def test_the_version_is_said_once() -> None:
    assert PROJECT["dynamic"] == ["version"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", kvplan.__version__)


def imports(file: Path) -> set[str]:
    """The packages that a module imports, wherever it does."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    plain = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    parts = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return {name.partition(".")[0] for name in (*plain, *parts)}


def test_what_is_imported_is_a_plain_dependency_or_an_extra() -> None:
    needed = {re.split(r"[>=<]", name)[0] for name in PROJECT["dependencies"]}
    files = [file for room in (ROOT / "src/kvplan").iterdir() if room.is_dir() for file in room.resolve().rglob("*.py")]
    imported = {name for file in files for name in imports(file)} - {*sys.stdlib_module_names}
    missing = {name for name in imported - EXTRAS - {"kvplan"} if THIRD_PARTY.get(name, name) not in needed}
    assert missing == set()


def test_the_front_page_has_no_link_that_only_a_clone_has() -> None:
    home = PROJECT["urls"]["Repository"]
    links = re.findall(r"(?:\]\(|^\[[\w-]+\]: )([^)#\s]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert [link for link in links if not link.startswith("https://")] == []
    own = [link.removeprefix(f"{home}/blob/main/") for link in links if link.startswith(home)]
    assert own
    assert [path for path in own if not (ROOT / path).exists()] == []


def test_the_demo_is_a_file_of_the_package() -> None:
    assert shipped().is_relative_to(Path(kvplan.__file__).parent)
    assert shipped().samefile(ROOT / "examples/demo.yaml")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's files, built of what git would have, and nothing of the clone."""
    if int(version("setuptools").split(".")[0]) < BACKEND:
        pytest.skip(f"the backend of the wheel is setuptools {BACKEND}")
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(ROOT)]
    subprocess.run([*pip, *build], check=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    subprocess.run(
        [*pip, "install", "--no-deps", "--no-index", "--target", str(folder / "site"), str(wheel)], check=True
    )
    return folder / "site"


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--version"], kvplan.__version__),
        (["keys", "prefill"], "wrote prefill.key"),
        (["demo", "--transport", "memory", "--seconds", "280"], " lines: plans/"),
        (["bench", "proof", "--pairs", "2"], "proof"),
        (["list"], "llama-3.1-8b"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_commands_work_from_a_wheel(installed: Path, tmp_path: Path, words: list[str], said: str) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "kvplan.cli", *words]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, said in done.stdout) == (0, True), done.stderr


@pytest.mark.full
def test_the_runtime_is_imported_from_a_wheel(installed: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(installed)}
    code = "from kvplan.runtime import *; import kvplan; print(kvplan.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert str(installed) in done.stdout
