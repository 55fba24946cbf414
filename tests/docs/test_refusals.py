"""docs/refusals.md has every refusal by its title, and shows what the commands print now.

KVPLAN_REGOLD=1 rewrites the page, and is never green. The page's Python examples are doctests.
"""

from __future__ import annotations

import doctest
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from tests.paths import ROOT

from kvplan.cli.codes import all_codes, written
from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.compat import check_pair
from kvplan.compiler.errors import CompileError, Refused
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.plan import planes as names
from kvplan.plan.errors import RequestFault
from kvplan.plan.types import Side
from kvplan.runtime import DecodeWorker, Hub, Identity, InMemory, Plain, PrefillWorker, views

PAGE = ROOT / "docs/refusals.md"
HEADING = re.compile(r"^### ([A-Z]\d{3}) .*$", re.MULTILINE)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COUNT = re.compile(r"^\d (?:pair|plan)s?: \d written, 0 up to date.*\n\Z", re.MULTILINE)
EXIT = {"C": 3, "Q": 2}
POOL = 8


def refusals() -> set[str]:
    """The codes of pairs that cannot be done, of tables that do not fit, and the runtime's one for requests."""
    tables = (ROOT / "compiler/check/trace.py").read_text()
    faults = {fault.value for fault in RequestFault}
    pairs = (code for code in written() if code[0] == "C")
    return {*pairs, *faults, *re.findall(r'"(Q\d{3})"', tables), "R041"}


def fresh(page: str) -> str:
    """`page` with titles as they are now, and with what its commands print now in this folder."""
    return BLOCK.sub(_block, HEADING.sub(_section, page))


def _section(found: re.Match[str]) -> str:
    return f"### {found[1]} {all_codes()[found[1]].title}"


def _block(found: re.Match[str]) -> str:
    form, text = found.groups()
    if form == "yaml":
        Path(f"{text.splitlines()[1].split(': ')[1]}.yaml").write_text(text)
    if form == "json":
        Path("request.json").write_text(text)
    return found[0] if form != "console" else f"```console\n{_run(text.splitlines()[0])}```"


def _run(line: str) -> str:
    """A command with all that it prints, but for the count of plans; its exit code is that of the error it shows."""
    said = CliRunner().invoke(main, line.removeprefix("$ kvplan ").split())
    code = re.search(r"error\[(\w)", said.output)
    assert said.exit_code == (EXIT[code[1]] if code else 0), said.output
    return f"{line}\n{COUNT.sub('', said.output)}"


def test_the_page_is_fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text()
    now = fresh(page)
    if os.environ.get("KVPLAN_REGOLD") and now != page:
        PAGE.write_text(now)
        pytest.fail("rewrote docs/refusals.md")
    assert now == page


def test_every_refusal_has_one_section_and_shows_itself() -> None:
    rest = re.split(r"^### ", PAGE.read_text(), flags=re.MULTILINE)[1:]
    assert sorted(body[:4] for body in rest) == sorted(refusals())
    for body in rest:
        code, title = body.splitlines()[0].split(" ", 1)
        shown = f"error[{code}]: " in body or f"\nkvplan.compiler.errors.Refused: {code}: " in body
        assert shown or f"errors.{title}: " in body or "A guard:" in all_codes()[code].text, code


def _arrays(side: Side) -> dict[str, np.ndarray]:
    return {plane.name: np.zeros((POOL, plane.stride), np.uint8) for plane in names.planes(side.workers[0])}


@pytest.fixture
def decode() -> Iterator[DecodeWorker]:
    """One worker reads from one, with pools of 8 blocks on both sides."""
    plan, hub = compile_pair(load(), "qwen3-0.6b", "tp=1", "tp=1").plan, Hub()
    pools = views(plan.prefill, 0, _arrays(plan.prefill)), views(plan.decode, 0, _arrays(plan.decode))
    source = PrefillWorker(plan, 0, pools[0], InMemory(hub, "p"), identity=Identity("prefill"), keys=Plain())
    source.announce([source.address])
    source.hold("r1")
    reader = DecodeWorker(plan, 0, pools[1], InMemory(hub, "d"), identity=Identity("decode"), keys=Plain())
    reader.connect(source.address, 10)
    yield reader
    reader.close()
    source.close()


def test_python_on_the_page(decode: DecodeWorker) -> None:
    text = "\n".join(text for form, text in BLOCK.findall(PAGE.read_text()) if form == "pycon")
    page = doctest.DocTestParser().get_doctest(text, {"worker": decode}, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    result = doctest.DocTestRunner().run(page, out=said.append)
    assert result.attempted > 0
    assert not result.failed, "".join(said)


@pytest.mark.parametrize(
    ("prefill", "decode", "remedy"),
    [
        ("block=32", "kv_dtype=fp8,block=64", "give both sides kv_dtype=bf16, or both kv_dtype=fp8"),
        ("tp=4,kernel_block=16,block=32", "kv_dtype=fp8", "give both sides kv_dtype=bf16, or both kv_dtype=fp8"),
        ("kv_dtype=fp8", "block=16", "give both sides kv_dtype=fp8, or both kv_dtype=bf16"),
        (
            "kv_dtype=fp8",
            "engine=sglang,block=16",
            "give both sides kv_dtype=fp8, or both kv_dtype=bf16, whichever both engines have",
        ),
        ("engine=eight", "tp=2", "give both sides kv_dtype=fp8, or both kv_dtype=bf16, whichever both engines have"),
    ],
)
def test_the_option_to_set_is_named(library: Library, prefill: str, decode: str, remedy: str) -> None:
    with pytest.raises(Refused) as caught:
        compile_pair(library, "llama-3.1-8b", prefill, decode)
    assert (caught.value.code, caught.value.help.partition(": ")[2]) == ("C134", remedy)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """With an engine whose caches are of another type where nobody says so."""
    path = tmp_path_factory.mktemp("layouts") / "eight.yaml"
    options = "options: {kv_dtype: {default: \"'fp8'\"}}"
    path.write_text(f"kvplan: 1\nengine: eight\nextends: custom\ntitle: fp8 by default\n{options}\n")
    return load([path])


@pytest.mark.parametrize("changed", ["extent", "name", "row"])
def test_unlike_geometry_is_named(library: Library, changed: str) -> None:
    side = bind(library, library.model("llama-3.1-8b"), "tp=2")
    (cache,) = side.caches
    k, v = cache.tensors
    axes = {"extent": (*k.axes[:-1], ("dim", 64)), "name": (*k.axes[:-1], ("turn", 128)), "row": k.axes}[changed]
    other = replace(cache, tensors=(replace(k, axes=axes, tokens_per_row=4 if changed == "row" else 1), v))
    with pytest.raises(Refused) as caught:
        check_pair(side, replace(side, caches=(other,)))
    said = {
        "extent": "dim 128 on prefill and dim 64",
        "name": "dim 128 on prefill and turn 128",
        "row": "a row per 1 tokens on prefill and a row per 4 tokens",
    }
    assert (caught.value.code, caught.value.message) == ("C132", f"'k' of 'attention' has {said[changed]} on decode")
    assert caught.value.help == "bind both sides from the same layout files"


@pytest.mark.parametrize("model", ["llama-3.1-8b", "deepseek-v3"])
def test_no_two_formats_are_taken_for_one(library: Library, model: str) -> None:
    words = library.engine(library.default_engine).options["kv_dtype"].values
    sides = [side for word in words if (side := _bound(library, model, f"kv_dtype={word}"))]
    assert len(sides) > 5
    for prefill, decode in permutations(sides, 2):
        with pytest.raises(Refused, match=r"C13[34]: .* give both sides kv_dtype=.*, or both kv_dtype="):
            check_pair(prefill, decode)


def _bound(library: Library, model: str, side: str) -> BoundSide | None:
    """The side, or None where the kind has no such format."""
    try:
        return bind(library, library.model(model), side)
    except (CompileError, DslError):
        return None
