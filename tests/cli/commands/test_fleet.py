"""kvplan fleet: engines in a real etcd, identical ones in a line, and their pairs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.fleet.test_records import record
from tests.runtime.helpers.waiting import until

from kvplan.bench.etcd_server import ETCD, EtcdServer
from kvplan.cli.main import main
from kvplan.fleet.etcd import EtcdFleet
from kvplan.plan.files import index
from kvplan.runtime.plans.catalog import Catalog


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["fleet", *map(str, words)])


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plans")
    words = ["compile", "qwen3-0.6b", "--prefill", "tp=1", "--decode", "tp=2", "-o", str(folder)]
    assert CliRunner().invoke(main, words).exit_code == 0
    return folder


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory, plans: Path) -> Iterator[str]:
    """Three engines that prefill, one that decodes, and one that nobody has a plan for."""
    if ETCD is None:
        pytest.skip("no etcd (Debian: etcd-server)")
    server = EtcdServer(tmp_path_factory.mktemp("etcd"))
    [one] = Catalog(plans).entries()
    sides = {"p": one.prefill, "d": one.decode, "x": ("other", "tp=3")}
    members = []
    for name in ("p0", "p1", "p2", "p3", "d0", "x0"):
        digest, key = sides[name[0]]
        members.append(EtcdFleet([server.url]))
        about = {"model": one.model, "model_digest": one.model_digest, "side": digest, "side_key": key}
        members[-1].announce(record(name, free_blocks=1000, **about))
    until(lambda: len(members[0].engines()) == len(members))
    yield server.url
    for member in members:
        member.close()
    server.kill()


def test_engines_that_are_alike_are_a_line_and_so_are_their_pairs(url: str, plans: Path) -> None:
    [one] = index.parse((plans / index.NAME).read_bytes(), "")
    done = run(url, "--plans", plans)
    assert done.exit_code == 0, done.output
    lines = [line.split() for line in done.output.splitlines()]
    assert ["4", "prefill", "ready", "qwen3-0.6b", "tp=1", "4,000", "p0,", "p1,", "p2", "and", "1", "more"] in lines
    assert f"4 qwen3-0.6b tp=1 tp=2 {one.plan}".split() in lines
    assert ["1", "qwen3-0.6b", "tp=3", "tp=2", "no", "plan", "from", "tp=3", "to", "tp=2"] in lines
    assert ["without", "a", "plan", "for", "anybody:", "x0"] in lines


def test_as_json(url: str, plans: Path) -> None:
    told = json.loads(run(url, "--plans", plans, "--format", "json").output)
    assert [one["name"] for one in told["engines"]] == ["d0", "p0", "p1", "p2", "p3", "x0"]
    assert {(one["prefill"], bool(one["plan"])) for one in told["pairs"]} == {
        ("p0", True), ("p1", True), ("p2", True), ("p3", True), ("x0", False),
    }  # fmt: skip


def test_a_file_of_records(url: str, plans: Path, tmp_path: Path) -> None:
    (tmp_path / "fleet.json").write_text(run(url, "--format", "json").output)
    assert run(tmp_path / "fleet.json", "--plans", plans).output == run(url, "--plans", plans).output


def test_nobody_is_there(url: str) -> None:
    assert run(url, "--prefix", "/elsewhere/").output == "no engine has announced itself\n"


@pytest.mark.parametrize("place", ["etcd:2379", "nowhere.yaml", "me:secret@etcd:2379", "http://me:secret@etcd:2379"])
def test_what_is_neither_a_url_nor_a_file(place: str) -> None:
    done = run(place)
    assert (done.exit_code, "error[R070]" in done.stderr, "URL of etcd" in done.stderr) == (2, True, True)
    assert "secret" not in done.output


def test_an_etcd_that_does_not_answer() -> None:
    done = run("http://127.0.0.1:9", "--seconds", "0.5")
    assert done.exit_code == 2
    assert "error[R070]: etcd has not answered within 0.5 s: http://127.0.0.1:9 does not answer: Conn" in done.stderr


def test_why_etcd_does_not_answer_is_said_once_and_without_what_clients_say_around_it() -> None:
    words = ["fleet", "http://127.0.0.1:9", "--seconds", "0.5"]
    done = subprocess.run([sys.executable, "-m", "kvplan.cli", *words], capture_output=True, text=True, check=False)
    assert done.stderr.count("refused") == 1
    assert "HTTPConnection" not in done.stderr
