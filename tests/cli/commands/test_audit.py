"""`kvplan audit` as a user runs it: the list of a trace, what is malformed in one, both forms, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.main import main

PAIR = ["llama-3.1-8b", "--prefill", "tp=2", "--decode", "tp=1"]
TABLES = {"attention": {"first": 0, "ids": [3, 5]}}
REQUEST = json.dumps({"tokens": [2, 30], "prefill": TABLES, "decode": TABLES})


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path = tmp_path_factory.mktemp("audit") / "request.json"
    path.write_text(REQUEST)
    done = CliRunner().invoke(main, ["trace", *PAIR, "--request", str(path), "--format", "json"])
    return path, json.loads(done.stdout)


def audit(request: Path, copies: str, *words: str, pair: list[str] = PAIR) -> Result:
    said = ["audit", *pair, "--request", str(request), "--copies", "-", *words]
    return CliRunner().invoke(main, said, input=copies)


def test_a_trace_is_ok_as_a_whole_and_as_a_list(traced: tuple[Path, dict[str, Any]]) -> None:
    request, answer = traced
    for copies in (answer, {"copies": answer["copies"]}, answer["copies"]):
        done = audit(request, json.dumps(copies))
        assert (done.exit_code, done.stdout[:3]) == (0, "OK:")


def test_a_wrong_list_is_exit_1_and_counted(traced: tuple[Path, dict[str, Any]]) -> None:
    request, answer = traced
    first, *others = answer["copies"]
    said = audit(request, json.dumps(others), "--format", "json")
    found = json.loads(said.stdout)
    assert said.exit_code == 1
    assert (found["right"], found["missing"], found["wrong"]) == (False, first["bytes"], 0)
    assert {f["fault"] for f in found["findings"]} == {"missing"}
    text = audit(request, json.dumps(others))
    assert text.exit_code == 1
    assert "decode worker 0 · layer 0 · attention.k · head 0 · token 2 · dim 0 · byte 0: is not written" in text.stdout


def test_the_limit_leaves_a_finding_of_every_fault(traced: tuple[Path, dict[str, Any]]) -> None:
    found = json.loads(audit(traced[0], "[]", "--limit", "0", "--format", "json").stdout)
    assert len(found["findings"]) == 1
    assert found["findings"][0]["bytes"] + found["others"] == found["missing"] == found["bytes"]


def put(value: object, *path: str) -> Callable[[dict[str, Any]], object]:
    """Set the last key of `path` in a copy; without a value, take it away."""

    def change(copy: dict[str, Any]) -> None:
        for key in path[:-1]:
            copy = copy[key]
        copy.pop(path[-1]) if value is None else copy.update({path[-1]: value})

    return change


@pytest.mark.parametrize(
    ("change", "code", "word"),
    [
        (put(None, "bytes"), "Q031", "no 'bytes'"),
        (put(None, "from", "plane"), "Q031", "copies[1].from has no 'plane'"),
        (put(1, "size"), "Q031", "'size'"),
        (put(1, "to", "block"), "Q031", "'block'"),
        (put(7, "to"), "Q031", "copies[1].to is 7"),
        (put(0, "bytes"), "Q032", "copies[1].bytes is 0"),
        (put(-4, "bytes"), "Q032", "copies[1].bytes is -4"),
        (put(1.5, "to", "offset"), "Q032", "copies[1].to.offset is 1.5"),
        (put(True, "from", "worker"), "Q032", "copies[1].from.worker is true"),
        (put(10**30, "from", "offset"), "Q032", "copies[1].from.offset is 1000"),
        (put([], "to", "plane"), "Q031", "copies[1]"),
        (put(2, "from", "worker"), "Q033", "workers 0 to 1"),
        (put("atention.1", "to", "plane"), "Q034", "did you mean 'attention.1'?"),
    ],
)
def test_a_malformed_copy_is_named_by_its_index(
    traced: tuple[Path, dict[str, Any]], change: Callable[[dict[str, Any]], object], code: str, word: str
) -> None:
    request, answer = traced
    copies = json.loads(json.dumps(answer["copies"]))
    change(copies[1])
    done = audit(request, json.dumps(copies), "--format", "json")
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["code"]) == (2, code)
    assert "copies[1]" in error["message"]
    assert word in f"{error['message']} {error['help']}"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "Q030"), ("{", "Q030"), ("[" * 100_000, "Q030"), ("{}", "Q031"), ("7", "Q031"), ("null", "Q031"),
        ('{"copies": {}}', "Q031"), ("[[]]", "Q031"), ('[{"bytes": 1, "bytes": 2}]', "Q031"),
        ('[{"worker": 0, "plane": "p", "offset": 0}]', "Q031"),
        ('{"worker": 0, "plane": "p", "offset": 0}', "Q031"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_copies_is_refused(traced: tuple[Path, dict[str, Any]], text: str, code: str) -> None:
    done = audit(traced[0], text, "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, code)


def test_a_copy_beyond_the_pool_is_refused_where_the_pool_is_known(traced: tuple[Path, dict[str, Any]]) -> None:
    request, answer = traced
    answer = json.loads(json.dumps(answer))
    answer["copies"][1]["to"]["offset"] = 8 * 65_536
    assert audit(request, json.dumps(answer)).exit_code == 1
    pair = [*PAIR[:-1], "tp=1,blocks=8"]
    done = audit(request, json.dumps(answer), "--format", "json", pair=pair)
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, "Q035")


def test_stdin_gives_one_file_only() -> None:
    done = CliRunner().invoke(main, ["audit", *PAIR, "--request", "-", "--copies", "-"], input=REQUEST)
    assert done.exit_code == 2
    assert "stdin" in done.output


def test_a_refused_pair_is_exit_3(traced: tuple[Path, dict[str, Any]]) -> None:
    done = audit(traced[0], "[]", pair=["llama-3.1-8b", "--prefill", "tp=3", "--decode", "tp=1"])
    assert done.exit_code == 3
