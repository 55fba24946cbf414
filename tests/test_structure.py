"""Laws of the repository that no linter knows: which words code may not contain, what a command may load."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.paths import CODE, ROOT

PACKAGES = (*CODE, "layouts")
# Words of an architecture's or engine's family that no file's name shows; their numbered forms are caught, too.
FAMILIES = (
    "llama",
    "deepseek",
    "gemma",
    "nemotron",
    "qwen",
    "mamba",
    "jamba",
    "granite",
    "kimi",
    "sglang",
    "gaudi",
    "ascend",
    "rbln",
)
TEXT = {".py", ".j2", ".lark"}


def sources(folder: str, suffixes: set[str] = TEXT) -> Iterator[Path]:
    return (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in suffixes and path.is_file())


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


CODE_FILES = [path for folder in CODE for path in sources(folder)]
PYTHON_FILES = [path for folder in PACKAGES for path in sources(folder, {".py"})]


def test_every_package_is_linked() -> None:
    """src/kvplan has a link to each package at the root, and nothing else but its own file."""
    folders = {path.parent.name for path in ROOT.glob("*/__init__.py")} - {"tests"}
    links = {path.name: path for path in (ROOT / "src/kvplan").iterdir() if path.is_symlink()}
    assert set(links) == folders
    assert all(path.resolve() == ROOT / name for name, path in links.items())


# A word of the language, too: forbidden where it is compared with an engine's name.
WORD = "store"


@cache
def forbidden() -> re.Pattern[str]:
    """Every name of a kind, an engine or a model in layouts/, architectures included, and their families."""
    stems = {path.stem for path in (ROOT / "layouts").glob("*/*.yaml")} - {WORD}
    texts = [path.read_text() for path in (ROOT / "layouts" / "models").glob("*.yaml")]
    architectures = {name for text in texts for name in re.findall(r"architectures:\s*(\w+)", text)}
    words = {re.escape(word) for word in stems | architectures} | {rf"{word}[-_.\d]*" for word in FAMILIES}
    words |= {rf"engine(?:\.name)?\W+{WORD}"}
    return re.compile(rf"(?<![a-z0-9])({'|'.join(sorted(words, key=len, reverse=True))})(?![a-z0-9])", re.IGNORECASE)


# Words that a connector has to say: those of SGLang's interface, for its pool of recurrent states and for parameters,
# and the layout of the pool that is vLLM's connector's own.
INTERFACE = {"sglang": ("mamba", "mamba2", "custom"), "vllm": ("encoder-cache", "encoder-pool")}


def named(path: Path) -> Iterator[str]:
    """The models, kinds and engines that a file names, with their lines, but for a connector's own engine."""
    room, own, *_ = (*path.relative_to(ROOT).parts[:-1], "", "")
    own = own if room == "integrations" else ""
    allowed = {own, *INTERFACE.get(own, ())}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for hit in forbidden().finditer(line):
            if hit[0].lower().strip("-_.") not in allowed:
                yield f"{name_of(path)}:{number}: {hit[0]}"


def test_code_names_no_model_kind_or_engine() -> None:
    assert len(CODE_FILES) > 400
    assert [hit for path in CODE_FILES for hit in named(path)] == []


@pytest.mark.parametrize(
    "name", ["llama", "GQA", "mla", "mamba_0", "Mamba2", "vllm", "LlamaForCausalLM", "qwen3-0.6b", "store"]
)
def test_the_search_for_names_can_fail(name: str) -> None:
    assert forbidden().search(f"if engine == '{name}':")


def test_no_promises_left() -> None:
    promise = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    assert [name_of(path) for path in PYTHON_FILES if promise.search(path.read_text())] == []


def test_no_path_of_a_machine_in_tracked_files() -> None:
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    paths = [ROOT / name for name in tracked.split("\0") if name]
    texts = {name_of(path): path.read_text(errors="replace") for path in paths if path.is_file()}
    pattern = re.compile(r"(?<![.\w])/(?:work|root|farm|home)/")
    assert not [name for name, text in texts.items() if pattern.search(text)]


def python(code: str, **environment: str) -> str:
    run = [sys.executable, "-c", code]
    return subprocess.run(
        run, cwd=ROOT / "docs", env={**os.environ, **environment}, capture_output=True, text=True, check=True
    ).stdout


HELP = """
import sys
from kvplan.cli.main import main
sys.argv = ["kvplan", "--help"]
try:
    main()
except SystemExit:
    pass
import json
print(json.dumps(sorted(sys.modules)))
"""


def test_help_imports_nothing_heavy() -> None:
    modules = json.loads(python(HELP).splitlines()[-1])
    assert {"torch", "nixl", "nixl_cu12", "jinja2", "numpy", "lark", "yaml", "zmq"}.isdisjoint(modules)


def test_plan_types_import_numpy_only() -> None:
    code = "import sys, json, kvplan.plan.types; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    top = set(json.loads(python(code)))
    assert {"torch", "nixl", "nixl_cu12", "zmq", "msgspec", "jinja2", "lark", "yaml", "click"}.isdisjoint(top)


PLAN = """
from kvplan.dsl.library import load
from kvplan.compiler.api import compile_pair
fp8 = "kv_dtype=fp8,kernel_block=16"
print(compile_pair(load(), "nemotron-3-nano-30b", f"tp=4,{fp8}", f"tp=1,{fp8}").text)
print(compile_pair(load(), "llama-3.1-8b", "tp=1", "tp=2,order=nhd").text)
"""


def test_hash_seeds_do_not_matter() -> None:
    assert len({python(PLAN, PYTHONHASHSEED=seed) for seed in ("0", "4711")}) == 1


OWN = ("self", "cls", "super()", "os")


def private(source: str) -> list[str]:
    """The private attributes that code reads of anything but itself."""
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute))
    others = (node for node in found if ast.unparse(node.value) not in OWN)
    return [ast.unparse(node) for node in others if re.match(r"_(?!_)", node.attr)]


def test_tests_of_the_runtime_look_at_public_names_only() -> None:
    """So that they go on to judge a runtime that is built in another way: `inspect` shows what they need."""
    read = {name_of(path): private(path.read_text()) for path in sources("tests/runtime", {".py"})}
    assert len(read) > 40
    assert not {name: hits for name, hits in read.items() if hits}


def test_a_private_name_is_noticed() -> None:
    assert private("worker._inbox.clients[0]._key, self._own, super()._post, thing.__dict__") == [
        "worker._inbox.clients[0]._key",
        "worker._inbox",
    ]
