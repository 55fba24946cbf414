"""Names of pairs: of a deployment by engine and mesh, of a pair alone by all of its options, never that of another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.compiler.api import Compiled, compile_pair
from kvplan.deploy import pair_names, plan_index
from kvplan.dsl.library import load

MODEL = "qwen3-0.6b"
Row = tuple[str, str] | tuple[str, str, str]


@cache
def compiled(prefill: str, decode: str, elect: str = "one") -> Compiled:
    return compile_pair(load(), MODEL, prefill, decode, {"elect": elect})


def names(rows: Sequence[Row]) -> list[str]:
    """The names of unnamed pairs, in the order of the rows."""
    found = pair_names.in_deployment(("", compiled(*row)) for row in rows)
    paths = {id(pair): path for path, pair in found.items()}
    return [paths[id(compiled(*row))].removeprefix("qwen3_0_6b/").removesuffix(".py") for row in rows]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("tp=1", "tp=2,block=32,order=nhd")], ["p_tp1__d_tp2"]),
        ([("tp=1", "tp=2", "spread")], ["p_tp1__d_tp2"]),
        ([("engine=custom,tp=1", "tp=2")], ["p_custom_tp1__d_tp2"]),
        ([("tp=1,pp=2", "tp=1")], ["p_tp1_pp2__d_tp1"]),
        ([("tp=1", "tp=2"), ("tp=1", "tp=2,block=32")], ["p_tp1__d_tp2", "p_tp1__d_tp2_block32"]),
        ([("tp=1", "tp=2"), ("tp=1", "tp=2", "spread")], ["p_tp1__d_tp2", "p_tp1__d_tp2__elect_spread"]),
        (
            [("tp=1,block=32", "tp=2,block=32"), ("tp=1,block=32", "tp=2,block=64"), ("tp=1", "tp=1")],
            ["p_tp1__d_tp2_block32", "p_tp1__d_tp2_block64", "p_tp1__d_tp1"],
        ),
    ],
)
def test_options_stand_in_a_name_only_where_they_must(rows: list[Row], expected: list[str]) -> None:
    assert names(rows) == expected
    assert names(rows[::-1]) == expected[::-1]


def test_the_same_pair_twice_is_one() -> None:
    pairs = [compiled("tp=1", "tp=2"), compile_pair(load(), MODEL, "tp=1", "order=hnd,tp=2")]
    assert [*pair_names.in_deployment(("", pair) for pair in pairs)] == ["qwen3_0_6b/p_tp1__d_tp2.py"]


def test_a_name_of_ones_own() -> None:
    found = pair_names.in_deployment([("Long-Chat", compiled("tp=1", "tp=2")), ("", compiled("tp=1", "tp=2,block=32"))])
    assert [*found] == ["qwen3_0_6b/long_chat.py", "qwen3_0_6b/p_tp1__d_tp2.py"]


def deployment(folder: Path, *rows: str) -> str:
    file = folder / "deploy.yaml"
    entries = "".join(f"  - {{models: [{MODEL}], {row}}}\n" for row in rows)
    file.write_text(f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n{entries}")
    return str(file)


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, [*words])
    return done.exit_code, done.output


def test_a_pair_keeps_its_file_when_its_options_change(tmp_path: Path) -> None:
    out = ["-o", str(tmp_path / "plans"), "--prune"]
    for decode in ("tp=2", "tp=2,block=32", "tp=2,order=nhd"):
        file = deployment(
            tmp_path, f'name: chat, prefill: [tp=4], decode: ["{decode}"]', "prefill: [tp=1], decode: [tp=1]"
        )
        assert run("compile", file, *out)[0] == 0
        files = sorted(path.stem for path in (tmp_path / "plans").rglob("*.py"))
        assert files == ["chat", "p_tp1__d_tp1"]


def test_pairs_alone_do_not_write_over_each_other(tmp_path: Path) -> None:
    out = ["-o", str(tmp_path)]
    assert run("compile", deployment(tmp_path, 'prefill: [tp=1], decode: ["tp=2,block=32"]'), *out)[0] == 0
    for decode in ("tp=2", "tp=2,block=64", "tp=2,block=32"):
        assert run("compile", MODEL, "--prefill", "tp=1", "--decode", decode, *out)[0] == 0
    found = {one.decode[1]: one.path for one in plan_index.entries(tmp_path)}
    assert found["tp=2,block=32"] == "qwen3_0_6b/p_tp1__d_tp2.py"
    assert found["tp=2,block=64"] == "qwen3_0_6b/p_tp1__d_tp2_block64.py"
    assert found["tp=2"].startswith("qwen3_0_6b/p_tp1__d_tp2_")
    assert len(set(found.values())) == 3


def test_a_name_is_of_one_pair(tmp_path: Path) -> None:
    file = deployment(
        tmp_path,
        "name: a, prefill: [tp=1], decode: [tp=1/2]",
        "name: b-c, prefill: [tp=1], decode: [tp=1]",
        "name: b.c, prefill: [tp=1], decode: [tp=2]",
        "name: p_x, prefill: [tp=1], decode: [tp=2]",
    )
    code, said = run("check", file)
    assert (code, said.count("error[S029]"), said.count("error[K009]")) == (2, 2, 1)
    Path(file).write_text(Path(file).read_text().replace("p_x", "x"))
    column = Path(file).read_text().splitlines()[4].index("a, prefill") + 1
    for words in (["check", file], ["compile", file, "-o", str(tmp_path / "plans")]):
        code, said = run(*words)
        assert (code, said.count("error[S029]")) == (2, 2)
        assert f"{file}:5:{column}: error[S029]: 'a' is the name of one pair, and this entry makes 2 of a model" in said
        assert f"{file}:7:{column}: error[S029]: 'b.c' is the name of another pair of {MODEL}" in said
    assert not (tmp_path / "plans").exists()
