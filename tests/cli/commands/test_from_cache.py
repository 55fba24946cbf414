"""kvplan from-cache: dumps from an engine's own code against the layouts, and layouts written from dumps."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.paths import FIXTURES, ROOT

from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.dsl.library import load

DUMPS = FIXTURES / "dumps"
Edit = Callable[[dict[str, Any]], object]


def run(*args: object, text: str = "") -> Result:
    return CliRunner().invoke(main, ["from-cache", *map(str, args)], input=text or None)


def dump(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DUMPS / f"{name}.json").read_text())
    return found


def edited(name: str, edit: Edit) -> str:
    found = copy.deepcopy(dump(name))
    edit(found)
    return json.dumps(found)


def differences(text: str, *args: str) -> list[dict[str, Any]]:
    done = run("-", "--format", "json", *args, text=text)
    assert done.exit_code in (0, 1), done.output
    said = json.loads(done.output)
    assert said["equal"] is (done.exit_code == 0)
    assert said["equal"] is not bool(said["differences"])
    found: list[dict[str, Any]] = said["differences"]
    return found


SOME = ("nemotron-3-nano-30b__tp4_fp8_sizes", "deepseek-v4-flash__tp1_blhnc", "whisper-large-v3__tp4_lbnhc")


@pytest.mark.parametrize("name", SOME)
def test_a_dump_is_compared_and_made_into_a_layout(name: str, tmp_path: Path) -> None:
    path, file = DUMPS / f"{name}.json", tmp_path / "written.yaml"
    done = run(path)
    assert done.exit_code == 0, done.output
    assert "as the layout says" in done.output
    assert f"wrote {file}" in run(path, "-o", file).output
    again = run(path, "--model", file)
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(("extra", "said"), [(False, "28 layers in 1 group, as"), (True, "in 1 group, 1 difference\n")])
def test_what_there_is_one_of_is_one(extra: bool, said: str) -> None:
    done = run("-", text=edited(SMALL, lambda d: d["groups"][0].update(window=1024) if extra else None))
    assert said in done.output


def test_a_layout_written_from_a_dump_compiles(tmp_path: Path) -> None:
    file = tmp_path / "written.yaml"
    assert run(DUMPS / "nemotron-3-nano-30b__tp1_fp8_sizes.json", "-o", file).exit_code == 0
    side = "kv_dtype=fp8,kernel_sizes=16+32+64"
    made = compile_pair(load([file], ()), "written", f"tp=2,{side}", f"tp=1,{side}", {})
    assert {group.ratio for group in made.plan.decode.groups} == {1, 261}


def _layer(found: dict[str, Any], key: str, value: object, axis: int | None = None) -> None:
    for layer in found["layers"]:
        if axis is None:
            layer[key] = value
        else:
            layer[key][axis] = value


SMALL = "qwen3-0.6b__tp2_blnhc"
WRONG: list[tuple[str, Edit, str, str, str]] = [
    (SMALL, lambda d: d["groups"][0].update(tokens=32, kernel_tokens=16), "tokens of a block", "32", "16"),
    (SMALL, lambda d: d["groups"][0].update(kernel_tokens=8), "tokens of a kernel block", "8", "16"),
    (SMALL, lambda d: d["groups"][0].update(window=1024), "window", "1024", "0"),
    (SMALL, lambda d: d["groups"][0].update(chunk=1024), "chunk", "1024", "0"),
    (SMALL, lambda d: d.update(blocks=2), "kernel blocks of a block", "2", "1"),
    (SMALL, lambda d: d.update(blocks=3), "kernel blocks of a block", "4 of 3 blocks", "1"),
    (SMALL, lambda d: _layer(d, "strides", 1, 0), "bytes between blocks", "1", "917504"),
    (SMALL, lambda d: _layer(d, "strides", 256, 1), "bytes between heads", "256", "512"),
    (SMALL, lambda d: _layer(d, "strides", 1024, 2), "bytes between tokens", "1024", "2048"),
    (SMALL, lambda d: _layer(d, "shape", 2, 1), "heads", "2", "4"),
    (SMALL, lambda d: _layer(d, "shape", 8, 2), "tokens", "8", "16"),
    (SMALL, lambda d: _layer(d, "shape", 128, 3), "bytes of a page", "16384", "32768"),
    (SMALL, lambda d: _layer(d, "dtype", "u8"), "bytes of an element", "1", "2"),
    (SMALL, lambda d: _layer(d, "dtype", "float16"), "element type", "f16", "bf16"),
    (SMALL, lambda d: _layer(d, "strides", 1, 3), "bytes between elements", "1", "2"),
    (SMALL, lambda d: d["layers"][3].update(offset=0), "bytes from the first layer in a block", "0", "98304"),
    (SMALL, lambda d: (d["layers"].pop(), d["groups"][0]["layers"].pop()), "layers", "none", "stored"),
    (SMALL, lambda d: d["layers"][0].update(layer=99), "layer 99", "32768 bytes a page", "none"),
]


@pytest.mark.parametrize(("name", "edit", "what", "there", "here"), WRONG, ids=[row[2] + row[3] for row in WRONG])
def test_a_difference_has_its_name_and_both_values(name: str, edit: Edit, what: str, there: str, here: str) -> None:
    found = [d for d in differences(edited(name, edit)) if d["what"] == what]
    assert [(d["dump"], d["layout"]) for d in found] == [(there, here)]
    assert found[0]["layers"]


STATES = "qwen3-next-80b__tp1"


def _spec(key: str, value: object) -> Edit:
    """An edit that sets `key` in the first spec of a dump, that of its states."""

    def edit(found: dict[str, Any]) -> None:
        found["specs"][0][key] = value

    return edit


UNREADABLE: list[tuple[str, Edit, str, str]] = [
    (STATES, _spec("shapes", [[8192, -1], [32, 128, 128]]), "D004", "shapes[0] is -1"),
    (STATES, _spec("shapes", [[8192, 0], [32, 128, 128]]), "D004", "shapes[0] is 0"),
    (STATES, _spec("shapes", [["a"], [32, 128, 128]]), "D004", 'shapes[0] is "a"'),
    (STATES, _spec("shapes", [8192, [32, 128, 128]]), "D003", "shapes[0] is 8192"),
    (STATES, _spec("shapes", None), "D003", "shapes is null"),
    (STATES, _spec("dtypes", ["abc", "float32"]), "D007", "dtypes[0] is 'abc', no element type"),
    (STATES, _spec("dtypes", [3, "float32"]), "D003", "dtypes[0] is 3"),
    (STATES, _spec("dtypes", ["bfloat16"]), "D007", "has 2 shapes and 1 dtypes"),
    (STATES, lambda d: d["specs"][0].pop("dtypes"), "D003", "dtypes is null"),
    (SMALL, lambda d: d["specs"][0].update(head_size=-1), "D004", "head_size is -1"),
    (SMALL, lambda d: d["specs"][0].update(head_size_v="128"), "D004", 'head_size_v is "128"'),
    (SMALL, lambda d: d["specs"][0].update(dtype="abc"), "D007", "dtype is 'abc', no element type"),
]


@pytest.mark.parametrize(("name", "edit", "code", "said"), UNREADABLE, ids=[row[3] for row in UNREADABLE])
def test_a_description_that_cannot_be_read_is_an_error(name: str, edit: Edit, code: str, said: str) -> None:
    """It happened: it was not compared, and the dump was "as the layout says"."""
    done = run("-", text=edited(name, edit))
    assert (done.exit_code, done.stdout) == (2, "")
    assert f"error[{code}]" in done.stderr
    assert said in done.stderr


@pytest.mark.parametrize(
    ("name", "edit", "said"),
    [
        (
            STATES,
            lambda d: [d["specs"][0].pop(key) for key in ("shapes", "dtypes")],
            "parts of a state of delta, 36 layers: the dump gives no shapes and dtypes",
        ),
        (
            SMALL,
            lambda d: d["specs"][0].pop("dtype"),
            "parts of a row of attention, 28 layers: the dump gives no head sizes and dtype",
        ),
        (
            "llama-3.1-8b__tp1_int8_per_token_head",
            lambda d: None,
            "parts of a row of attention, 32 layers: the dump's head sizes come to 256 of 264 bytes",
        ),
        (
            "llama-3.1-8b__tp4_lbnhc_fp8",
            lambda d: None,
            "parts of a row of attention, 32 layers: the dump gives bytes, and not what they are",
        ),
    ],
)
def test_what_a_dump_does_not_describe_is_said(name: str, edit: Edit, said: str) -> None:
    done = run("-", text=edited(name, edit))
    assert done.exit_code == 0
    assert ", as the layout says, as far as the dump shows it\n" in done.output
    assert f"not compared: {said}\n" in done.output
    notes = json.loads(run("-", "--format", "json", text=edited(name, edit)).output)["not_compared"]
    assert [said.partition(" of ")[0] for _ in notes] == [note["what"].partition(" of ")[0] for note in notes]
    assert all(note["layers"] for note in notes)


def test_tokens_that_are_not_moved_are_not_in_a_dump(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("kvplan: 1\nmodel: mine\nextends: qwen3-0.6b\ncaches: {attention: {needs: {whole: 4096}}}\n")
    done = run("-", "--model", str(path), text=edited(SMALL, lambda d: None))
    assert ", as the layout says, as far as the dump shows it\n" in done.output
    assert (
        "not compared: needs.whole of attention, 28 layers: a dump does not show which tokens decode needs\n"
        in done.output
    )


def test_an_untouched_dump_has_no_difference() -> None:
    assert differences(edited(SMALL, lambda d: None)) == []


def test_layers_that_change_groups_are_a_difference() -> None:
    def swapped(d: dict[str, Any]) -> None:
        one, two = d["layers"][0], next(x for x in d["layers"] if x["group"] == 1)
        one["group"], two["group"] = 1, 0
        for group, old, new in ((0, one, two), (1, two, one)):
            d["groups"][group]["layers"] = [
                new["name"] if n == old["name"] else n for n in d["groups"][group]["layers"]
            ]

    found = differences(edited("nemotron-3-nano-30b__tp4", swapped))
    assert {d["what"] for d in found} == {"layers that share a block table"}
    assert len(found) == 2


def test_a_state_of_another_size_is_a_difference() -> None:
    def smaller(d: dict[str, Any]) -> None:
        for layer in (x for x in d["layers"] if d["groups"][x["group"]]["store"] == "state"):
            layer["shape"][-1] -= 2

    found = differences(edited("nemotron-3-nano-30b__tp4", smaller))
    assert [(d["what"], int(d["layout"]) - int(d["dump"])) for d in found] == [("bytes of a page", 2)]


def test_the_side_can_be_given() -> None:
    text = edited(SMALL, lambda d: None)
    assert differences(text, "--side", "order=LBNHC")
    assert {d["what"] for d in differences(text, "--side", "block=32")} >= {"tokens of a block", "bytes of a page"}
    other = differences(text, "--model", "llama-3.1-8b")
    assert {d["layers"][0] for d in other if d["dump"] == "none"} == {"layer 28"}


def test_text_shows_both_values() -> None:
    done = run("-", text=edited(SMALL, lambda d: d["groups"][0].update(kernel_tokens=8)))
    assert done.exit_code == 1
    assert "  dump    8\n  layout  16\n" in done.output
    assert " and 27 more" in done.output


BAD: list[tuple[str, Edit, str]] = [
    ("version", lambda d: d.update({"kvplan-dump": 2}), "D002"),
    ("version is true", lambda d: d.update({"kvplan-dump": True}), "D002"),
    ("no version", lambda d: d.pop("kvplan-dump"), "D003"),
    ("no layers", lambda d: d.pop("layers"), "D003"),
    ("unknown key", lambda d: d.update(layer=[]), "D003"),
    ("engine is a text", lambda d: d.update(engine="x"), "D003"),
    ("rank of no axis", lambda d: d["rank"].update(ep=0), "D003"),
    ("store", lambda d: d["groups"][0].update(store="other"), "D003"),
    ("no tokens", lambda d: d["groups"][0].pop("tokens"), "D003"),
    ("a state with tokens", lambda d: d["groups"][0].update(store="state"), "D003"),
    ("option is a list", lambda d: d["side"].update(block=[16]), "D003"),
    ("negative blocks", lambda d: d.update(blocks=-1), "D004"),
    ("no blocks", lambda d: d.update(blocks=0), "D004"),
    ("half a block", lambda d: d.update(blocks=1.5), "D004"),
    ("negative offset", lambda d: d["layers"][0].update(offset=-1), "D004"),
    ("negative stride", lambda d: _layer(d, "strides", -1, 0), "D004"),
    ("empty axis", lambda d: _layer(d, "shape", 0, 0), "D004"),
    ("rank beyond the mesh", lambda d: d["rank"].update(tp=2), "D004"),
    ("spec beyond the list", lambda d: d["layers"][0].update(spec=9), "D004"),
    ("kernel does not divide", lambda d: d["groups"][0].update(kernel_tokens=5), "D004"),
    ("huge", lambda d: d.update(blocks=10**30), "D004"),
    ("in no group", lambda d: d["groups"][0]["layers"].pop(), "D005"),
    ("in no such group", lambda d: d["layers"][0].update(group=7), "D005"),
    ("unknown in a group", lambda d: d["groups"][0]["layers"].append("x"), "D005"),
    ("twice in a group", lambda d: d["groups"][0]["layers"].append(d["layers"][0]["name"]), "D005"),
    ("a name twice", lambda d: d["layers"].append(d["layers"][0]), "D005"),
    ("beyond the allocation", lambda d: d["layers"][0].update(offset=d["allocations"][0]), "D006"),
    ("in no allocation", lambda d: d["layers"][0].update(allocation=1), "D006"),
    ("strides of elements", lambda d: d.update(allocations=[d["allocations"][0] // 2]), "D006"),
    ("one stride too few", lambda d: d["layers"][0]["strides"].pop(), "D007"),
    ("unknown axis", lambda d: d.update(axes=["block", "head", "token", "dim"]), "D007"),
    ("no block axis", lambda d: d.update(axes=["head", "token", "content"]), "D007"),
    ("dtype", lambda d: d["layers"][0].update(dtype="complex"), "D007"),
    ("no number", lambda d: [x.update(name="x") or x.pop("layer") for x in d["layers"]], "D008"),
    ("no layout", lambda d: d["model"].pop("layout"), "D009"),
    ("an axis of another engine", lambda d: d["mesh"].update(ep=2), "D010"),
    ("unknown engine", lambda d: d["engine"].update(name="nobody"), "K008"),
    ("unknown layout", lambda d: d["model"].update(layout="nobody"), "K008"),
    ("unknown option", lambda d: d["side"].update(nonsense=1), "S005"),
]


@pytest.mark.parametrize(("edit", "code"), [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_a_bad_dump_is_named(edit: Edit, code: str) -> None:
    found = dump(SMALL)
    edit(found)
    done = run("-", "--format", "json", text=json.dumps(found))
    assert done.exit_code == 2, done.output
    error = json.loads(done.output)["error"]
    assert error["code"] == code
    assert error["message"]


def test_a_rank_that_nobody_has_is_named() -> None:
    text = edited("deepseek-v3__tp8_dcp8_sizes", lambda d: d["rank"].update(dcp=0))
    done = run("-", "--format", "json", text=text)
    assert done.exit_code == 2
    assert json.loads(done.output)["error"]["code"] == "D010"


@pytest.mark.parametrize("text", ["", "{", "[1,", "nul", '{"a": NaN}', "[" * 100_000, "\ud7ff{"])
def test_what_is_not_json_is_named(text: str) -> None:
    done = run("-", "--format", "json", text=text or " ")
    assert done.exit_code == 2
    assert json.loads(done.output)["error"]["code"] == "D001"


def test_a_key_given_twice_is_named() -> None:
    done = run("-", "--format", "json", text='{"kvplan-dump": 1, "kvplan-dump": 1}')
    assert json.loads(done.output)["error"]["code"] == "D003"


ODD: list[object] = [None, True, -1, 0, 3, 2**70, 1.5, "", "x", "0", [], [1], {}, {"a": 1}]


def _places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    items: list[tuple[str | int, object]] = list(value.items() if isinstance(value, dict) else ())
    items += list(enumerate(value)) if isinstance(value, list) else []
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("form", ["compare", "write"])
def test_odd_values_anywhere_end_in_an_answer(seed: int, form: str, tmp_path: Path) -> None:
    chosen = random.Random(seed)
    whole = dump("lfm2-1.2b__tp2")
    for turn in range(20):
        found = copy.deepcopy(whole)
        path = chosen.choice(_places(found)[1:])
        inner: Any = found
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = chosen.choice(ODD)
        args = ["-o", str(tmp_path / f"m{turn}.yaml")] if form == "write" else []
        done = run("-", *args, text=json.dumps(found))
        assert isinstance(done.exception, SystemExit | None), (path, done.exception)
        assert done.exit_code in (0, 1, 2, 3)


@pytest.mark.parametrize("args", [["--model", "qwen3-0.6b"], ["--side", "tp=1"]])
def test_what_writing_has_no_use_for_is_refused(args: list[str], tmp_path: Path) -> None:
    done = run(DUMPS / f"{SMALL}.json", "-o", tmp_path / "new.yaml", *args)
    assert done.exit_code == 2
    assert args[0] in done.output
    assert not (tmp_path / "new.yaml").exists()


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "new.yaml"
    file.write_text("mine")
    assert run(DUMPS / f"{SMALL}.json", "-o", file).exit_code == 2
    assert file.read_text() == "mine"


def test_a_spec_that_no_rule_knows_is_named(tmp_path: Path) -> None:
    text = edited(SMALL, lambda d: d["specs"][0].update({"class": "NewSpec"}))
    done = run("-", "-o", tmp_path / "new.yaml", "--format", "json", text=text)
    assert done.exit_code == 2
    assert json.loads(done.output)["error"]["code"] == "D012"
    assert not (tmp_path / "new.yaml").exists()


def test_a_spec_that_lacks_a_number_is_named(tmp_path: Path) -> None:
    text = edited(SMALL, lambda d: d["specs"][0].pop("head_size"))
    done = run("-", "-o", tmp_path / "new.yaml", "--format", "json", text=text)
    error = json.loads(done.output)["error"]
    assert error["code"] == "D013"
    assert "'dim'" in error["message"]
    assert "head_size" in error["message"]


def test_an_engine_without_rules_is_named(tmp_path: Path) -> None:
    text = edited(SMALL, lambda d: d["engine"].update(name="custom"))
    done = run("-", "-o", tmp_path / "new.yaml", "--format", "json", text=text)
    assert json.loads(done.output)["error"]["code"] == "D011"


def test_what_a_worker_cannot_know_is_said(tmp_path: Path) -> None:
    done = run(DUMPS / "llama-3.1-8b__tp16_bhlnc.json", "-o", tmp_path / "new.yaml")
    assert "in doubt: attention.heads: 16 is assumed" in done.output
    assert "-heads-note: " in (tmp_path / "new.yaml").read_text()


def test_the_example_of_the_docs_is_a_dump(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "from-cache.md").read_text()
    text = page.partition("```json\n")[2].partition("```")[0]
    file = tmp_path / "two-layers.yaml"
    assert run("-", "-o", file, text=text).exit_code == 0
    assert "heads: 8" in file.read_text()
    assert differences(text, "--model", str(file)) == []
    assert differences(text.replace("8192", "4096"), "--model", str(file))


WRITES = """
def write(probed):
    key = probed.values["k"].astype("<f2")
    probed.pages[""][0].view(key.dtype)[0, 0] = key.flat[0]
"""


def test_a_probe_names_what_lies_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "writes_nothing.py").write_text(WRITES)
    path = DUMPS / "whisper-large-v3__tp4_lbnhc.json"
    done = run(path, "--probe", "writes_nothing:write")
    assert done.exit_code == 1, done.output
    assert "elements lie elsewhere; token 0, head 0, dim " in done.output
    assert json.loads(run(path, "--probe", "writes_nothing:write", "--format", "json").output)["probed"]
    assert "unverified: " in run(path).output


@pytest.mark.parametrize("name", ["writes_nowhere:write", "json:nothing", "json"])
def test_a_write_function_that_is_none_is_named(name: str) -> None:
    done = run(DUMPS / "whisper-large-v3__tp4_lbnhc.json", "--probe", name)
    assert done.exit_code == 2
    assert "error[D015]" in done.output
