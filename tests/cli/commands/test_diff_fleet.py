"""kvplan diff --fleet: what a change means to engines that run, in every form of the answer."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result
from tests.fleet.test_records import record

from kvplan.bench.etcd_server import ETCD, EtcdServer
from kvplan.cli.main import main
from kvplan.fleet.etcd import EtcdFleet
from kvplan.fleet.records import EngineRecord
from kvplan.review.text import WIDTH
from kvplan.runtime.plans.catalog import Catalog

RELEASES = {
    "old": ("tp=2", "tp=1"),
    "decode": ("tp=2", "tp=1,block=32"),
    "both": ("tp=2,order=nhd,block=32", "tp=1,block=32,order=nhd"),
}


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of plans, and a fleet that has those of `old`, in a file."""
    folder = tmp_path_factory.mktemp("plans")
    for name, (prefill, decode) in RELEASES.items():
        words = ["compile", "qwen3-0.6b", "--prefill", prefill, "--decode", decode, "-o", folder / name]
        assert run(*words).exit_code == 0
    engines = [{**about(one), "run": one.run} for one in fleet(folder / "old")]
    (folder / "fleet.yaml").write_text(json.dumps({"engines": engines}))
    return folder


def fleet(plans: Path) -> list[EngineRecord]:
    [one] = Catalog(plans).entries()
    sides = {"p": one.prefill, "d": one.decode}
    given = {"model": one.model, "model_digest": one.model_digest}
    return [
        record(name, side=sides[name[0]][0], side_key=sides[name[0]][1], **given)
        for name in ("p0", "p1", "d0", "d1", "d2", "d3")
    ]


def about(one: EngineRecord) -> dict[str, object]:
    return {name: getattr(one, name) for name in ("name", "role", "model", "model_digest", "side", "side_key")}


def test_the_order_in_text(plans: Path) -> None:
    said = run("diff", plans / "old", plans / "both", "--fleet", plans / "fleet.yaml")
    assert said.exit_code == 1
    assert "FLEET, 6 engines, with the plans of OLD and NEW in one index\n" in said.stdout
    assert "  qwen3-0.6b: roll both sides together, half of each first.\n" in said.stdout
    rows = [line.split() for line in said.stdout.splitlines()]
    assert ["half", "of", "both", "sides", "rolled", "4", "0"] in rows
    assert ["prefill", "rolled", "0", "6"] in rows
    assert max(map(len, said.stdout.splitlines())) <= WIDTH
    said = run("diff", plans / "old", plans / "decode", "--fleet", plans / "fleet.yaml")
    assert "  qwen3-0.6b: roll decode; prefill stays as it is.\n" in said.stdout
    assert "Only decode changes.\n  1. Put both plans into one index" in said.stdout
    assert "tp=2 → tp=1, 8 engine pairs: old and new can talk meanwhile\n" in said.stdout


def test_exit_codes_are_those_without_a_fleet(plans: Path) -> None:
    for words in (["old", "both"], ["old", "old"]):
        asked = ["diff", *(plans / word for word in words)]
        without, told = run(*asked), run(*asked, "--fleet", plans / "fleet.yaml")
        assert told.exit_code == without.exit_code
        said, _, fails = without.stdout.partition("\n\nFails in ")
        assert told.stdout.startswith(said.rstrip("\n"))
        assert told.stdout.endswith(fails)
    assert "no engine has to be rolled" in told.stdout
    assert run("diff", plans / "old", plans / "both", "--fleet", plans / "none.yaml").exit_code == 2


def test_other_compile_options_restart_engines_whose_sides_stay(plans: Path) -> None:
    words = [
        "compile",
        "qwen3-0.6b",
        "--prefill",
        "tp=2",
        "--decode",
        "tp=1",
        "--elect",
        "spread",
        "-o",
        plans / "spread",
    ]
    assert run(*words).exit_code == 0
    said = run("diff", plans / "old", plans / "spread", "--fleet", plans / "fleet.yaml").stdout
    assert "  qwen3-0.6b: restart both sides of plan 1 with new plan_options." in said
    assert "no engine has to be rolled" not in said


def test_a_refused_pair_is_to_be_corrected_before_engines_are_rolled(plans: Path, tmp_path: Path) -> None:
    row = "{models: [qwen3-0.6b], prefill: [tp=2], decode: ['tp=1,kv_dtype=fp8']}"
    (tmp_path / "deploy.yaml").write_text(f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n  - {row}\n")
    asked = ["diff", plans / "old", tmp_path / "deploy.yaml", "--fleet", plans / "fleet.yaml"]
    said = " ".join(run(*asked).stdout.split())
    assert "qwen3-0.6b: correct NEW first. What follows is without its 1 refused pair." in said
    assert "no engine has to be rolled" not in said


def test_no_order_asks_to_compile_what_cannot_be_compiled(tmp_path: Path) -> None:
    """A smaller window leaves the names of sides; old and new of it have no plan for each other."""
    layout = tmp_path / "local.yaml"
    caches = "caches: {local: {kind: gqa, layers: all, heads: 8, dim: 128, window: WINDOW}}"
    head = f"kvplan: 1\nmodel: local\ntitle: t\ndtype: bf16\nquery_heads: 8\nlayers: 4\n{caches}\n"
    for name, window in (("old", "512"), ("new", "256")):
        layout.write_text(head.replace("WINDOW", window))
        words = ["compile", layout, "--prefill", "tp=2", "--decode", "tp=1", "-o", tmp_path / name]
        assert run(*words).exit_code == 0
    engines = [about(one) for one in fleet(tmp_path / "old")]
    (tmp_path / "fleet.yaml").write_text(json.dumps({"engines": engines}))
    said = run("diff", tmp_path / "old", tmp_path / "new", "--fleet", tmp_path / "fleet.yaml").stdout
    assert "compile again" not in said
    assert "not with prefill or decode rolled first: old and new have no plan for each other" in " ".join(said.split())


def test_a_file_may_have_a_comma_in_its_name(plans: Path, tmp_path: Path) -> None:
    """It is looked for before URLs are."""
    path = tmp_path / "fleet,old.yaml"
    path.write_bytes((plans / "fleet.yaml").read_bytes())
    assert "FLEET, 6 engines" in run("diff", plans / "old", plans / "both", "--fleet", path).stdout


@pytest.mark.parametrize("form", ["json", "markdown", "github", "junit"])
def test_every_form_tells_whom_to_roll(plans: Path, form: str) -> None:
    said = run("diff", plans / "old", plans / "decode", "--fleet", plans / "fleet.yaml", "--format", form).stdout
    assert "qwen3-0.6b: roll decode; prefill stays as it is." in said
    if form == "junit":
        assert "roll decode" in (ElementTree.fromstring(said).findtext("testsuite/system-out") or "")
    if form == "github":
        assert sum(line.startswith("::notice title=kvplan diff --fleet::") for line in said.splitlines()) == 1


def test_json_has_every_class_pair_and_step(plans: Path) -> None:
    said = run("diff", plans / "old", plans / "both", "--fleet", plans / "fleet.yaml", "--format", "json").stdout
    told = json.loads(said)["fleet"]
    [decode, prefill], [model] = told["classes"], told["models"]
    assert (told["engines"], told["draining"]) == (6, [])
    assert (prefill["names"], prefill["rolls"], prefill["plans"]) == (["p0", "p1"], True, [1])
    assert prefill["now"]["side"] != prefill["then"]["side"]
    assert decode["role"] == "decode"
    assert (model["order"], [order["name"] for order in model["orders"]]) == (
        "together", ["together", "prefill first", "decode first"],
    )  # fmt: skip
    assert [order["cut"] for order in model["orders"]] == [0, 8, 8]
    [pair] = model["pairs"]
    assert (pair["verdict"], pair["engines"]) == ("together", 8)
    assert [bool(pair[word]["plan"]) for word in ("before", "prefill_first", "decode_first", "after")] == [
        True, False, False, True,
    ]  # fmt: skip
    assert "fleet" not in json.loads(run("diff", plans / "old", plans / "both", "--format", "json").stdout)


@pytest.mark.skipif(ETCD is None, reason="no etcd (Debian: etcd-server)")
def test_engines_of_an_etcd(plans: Path, tmp_path: Path) -> None:
    """A file with the output of `kvplan fleet` gives the same answer as the etcd itself."""
    server = EtcdServer(tmp_path)
    members = [EtcdFleet([server.url]) for _ in range(6)]
    try:
        for member, one in zip(members, fleet(plans / "old"), strict=True):
            member.announce(one)
        for _ in range(100):
            if (said := run("fleet", server.url, "--format", "json")) and len(json.loads(said.stdout)["engines"]) == 6:
                break
        (tmp_path / "printed.json").write_text(said.stdout)
        words = ["diff", plans / "old", plans / "both", "--fleet"]
        heard = run(*words, f"http://127.0.0.1:9,{server.url}")
        assert "FLEET, 6 engines" in heard.stdout
        assert heard.stdout == run(*words, tmp_path / "printed.json").stdout
    finally:
        for member in members:
            member.close()
        server.kill()
    assert run(*words, server.url, "--seconds", "0.2").exit_code == 2
    assert "secret" not in run(*words, "http://me:secret@127.0.0.1:9").output
