"""Plans are found by digests, pinned by their bytes, and made if they are missing."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.paths import ROOT
from tests.runtime.helpers.plan_texts import module_text
from tests.runtime.helpers.plans import Shape, plan

from kvplan.cli.main import main
from kvplan.plan.errors import KvplanError, PlanIndexError, PlanLoadError, PlanMissingError
from kvplan.plan.files import index
from kvplan.plan.files.loader import load_plan
from kvplan.plan.types import Plan
from kvplan.runtime.plans import jit
from kvplan.runtime.plans.catalog import Catalog, FixedPlans, Jit, PlanSource, plans_of

DEFAULT = (("elect", "one"), ("strategy", "direct"))
SPREAD = (("elect", "spread"), ("strategy", "direct"))
MODEL, PREFILL, DECODE = "qwen3-0.6b", "tp=1", "tp=2"


@cache
def text(prefill: int = 2, decode: int = 1, options: tuple = DEFAULT, skipped: tuple = ()) -> str:
    return module_text(replace(plan(Shape(prefill), Shape(decode)), options=options, skipped=skipped))


def stored(folder: Path, *texts: str) -> list[index.IndexEntry]:
    """Plans of these texts in a folder, with their index."""
    entries = []
    for number, one in enumerate(texts):
        path = folder / f"plan{number}.py"
        path.write_text(one)
        found = plans_of(path)
        assert isinstance(found, FixedPlans)
        unusual = ["elect"] if ("elect", "spread") in found.plans[0].options else []
        entries.append(index.entry(path.name, path.read_bytes(), found.plans[0], unusual))
    (folder / index.NAME).write_text(index.render(entries))
    return entries


def find(plans: PlanSource, one: index.IndexEntry) -> Plan:
    return plans.find(one.model, one.model_digest, one.prefill, one.decode)


def compiled(out: Path, *words: str) -> index.IndexEntry:
    """The last entry of the index after `kvplan compile` of one pair."""
    done = CliRunner().invoke(
        main, ["compile", MODEL, "--prefill", PREFILL, "--decode", DECODE, *words, "-o", str(out)]
    )
    assert done.exit_code == 0, done.output
    return index.parse((out / index.NAME).read_bytes(), "")[-1]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> index.IndexEntry:
    return compiled(tmp_path_factory.mktemp("made"))


def test_plans_are_found_by_digests(tmp_path: Path) -> None:
    entries = stored(tmp_path, text(2, 1), text(1, 2))
    catalog = Catalog(tmp_path)
    for one in entries:
        assert find(catalog, one).digest == one.plan
        assert find(catalog, one) is find(catalog, one)
        assert find(catalog, replace(one, model="another", prefill=(one.prefill[0], "another"))).digest == one.plan
    for wrong in (
        replace(entries[0], model_digest="x"),
        replace(entries[0], prefill=entries[1].prefill),
        replace(entries[0], decode=("x", "tp=1")),
    ):
        with pytest.raises(PlanMissingError):
            find(catalog, wrong)


def test_an_altered_file_is_refused_with_both_sums(tmp_path: Path) -> None:
    (one,) = stored(tmp_path, text())
    catalog = Catalog(tmp_path)
    find(catalog, one)
    marker = tmp_path / "executed"
    data = (text() + f"open({str(marker)!r}, 'w').close()\n").encode()
    (tmp_path / one.path).write_bytes(data)
    with pytest.raises(PlanIndexError, match=f"{index.pinned(data)}.*{one.sha256}"):
        find(catalog, one)
    assert not marker.exists()


def test_what_is_checked_is_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file changes as soon as its bytes have been read once."""
    (one,) = stored(tmp_path, text())
    real = index.contents

    def swapped(folder: Path, path: str) -> object:
        found = real(folder, path)
        if path == one.path:
            (tmp_path / path).write_text("raise SystemExit('the second text was read')")
        return found

    monkeypatch.setattr(index, "contents", swapped)
    assert find(Catalog(tmp_path), one).digest == one.plan


@pytest.mark.parametrize(
    ("field", "value"),
    [("plan", "0" * 32), ("model", "other"), ("options", SPREAD), ("prefill", "key"), ("decode", "key")],
)
def test_a_plan_that_is_not_what_the_index_says(tmp_path: Path, field: str, value: object) -> None:
    (one,) = stored(tmp_path, text())
    changed: dict[str, Any] = {field: (getattr(one, field)[0], "other") if value == "key" else value}
    said = replace(one, **changed)
    (tmp_path / index.NAME).write_text(index.render([said]))
    with pytest.raises(PlanIndexError, match=f"has {field} .* its index says"):
        find(Catalog(tmp_path), said)


def test_options_choose_among_plans_of_one_pair(tmp_path: Path) -> None:
    one, spread = stored(tmp_path, text(options=DEFAULT), text(options=SPREAD))
    for options, wanted in (
        ({}, one),
        ({"elect": "one"}, one),
        ({"elect": "spread"}, spread),
        ({"strategy": "direct"}, one),
    ):
        assert find(Catalog(tmp_path, options=options), one).digest == wanted.plan
    with pytest.raises(PlanMissingError, match="--elect some"):
        find(Catalog(tmp_path, options={"elect": "some"}), one)
    both = r", compiled with elect=some \(there is one by default and with elect=spread: choose it by its options\), in"
    with pytest.raises(PlanMissingError, match=both):
        find(Catalog(tmp_path, options={"elect": "some"}), one)
    (tmp_path / index.NAME).write_text(index.render([spread]))
    with pytest.raises(PlanMissingError, match=r"compiled by default \(there is one with elect=spread: choose"):
        find(Catalog(tmp_path), one)


def test_of_plans_alike_the_lowest_digest_is_taken(tmp_path: Path) -> None:
    other = text(skipped=("x",))
    entries = stored(tmp_path, text(), other)
    assert entries[0].plan != entries[1].plan
    lowest = min(one.plan for one in entries)
    for order in (entries, entries[::-1]):
        (tmp_path / index.NAME).write_text(json.dumps({"format": 1, "plans": json.loads(index.render(order))["plans"]}))
        assert find(Catalog(tmp_path), entries[0]).digest == lowest


def test_plans_that_an_index_names_no_more_are_not_kept(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    (one,) = stored(tmp_path, text(1))
    kept = find(catalog, one)
    assert find(catalog, one) is kept
    for prefill in (2, 1):
        (one,) = stored(tmp_path, text(prefill))
        again = find(catalog, one)
    assert again == kept
    assert again is not kept


def test_plan_and_index_replaced_while_one_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = stored(tmp_path, text())
    catalog = Catalog(tmp_path)
    catalog.entries()
    real = index.contents
    seen: list[index.IndexEntry] = []

    def late(folder: Path, path: str) -> object:
        if path == one.path and not seen:
            seen.extend(stored(folder, text() + "\n# of a later release\n"))
        return real(folder, path)

    monkeypatch.setattr(index, "contents", late)
    assert find(catalog, one).digest == one.plan
    assert seen[0].sha256 != one.sha256


def test_a_plan_that_gets_another_path_while_one_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (one,) = stored(tmp_path, text())
    catalog = Catalog(tmp_path)
    catalog.entries()
    real, moved = index.contents, list[index.IndexEntry]()

    def late(folder: Path, path: str) -> object:
        if path == one.path and not moved:
            moved.append(replace(one, path="other.py"))
            (folder / path).rename(folder / "other.py")
            (folder / index.NAME).write_text(index.render(moved))
        return real(folder, path)

    monkeypatch.setattr(index, "contents", late)
    assert find(catalog, one).digest == one.plan


DAMAGES: dict[str, Callable[[dict], object]] = {
    "format": lambda all: {**all, "format": 0},
    "truth": lambda all: {**all, "format": True},
    "list": lambda all: all["plans"],
    "field": lambda all: {**all, "more": 1},
    "plans": lambda all: {**all, "plans": {}},
    "twice": lambda all: {**all, "plans": all["plans"] * 2},
    "number": lambda all: {**all, "plans": [{**all["plans"][0], "sha256": 3}]},
    "empty": lambda all: {**all, "plans": [{**all["plans"][0], "plan": ""}]},
    "lacks": lambda all: {**all, "plans": [{k: v for k, v in all["plans"][0].items() if k != "sha256"}]},
    "side": lambda all: {**all, "plans": [{**all["plans"][0], "prefill": "tp=1"}]},
    "options": lambda all: {**all, "plans": [{**all["plans"][0], "options": []}]},
    "unusual": lambda all: {**all, "plans": [{**all["plans"][0], "unusual": ["none"]}]},
    "control": lambda all: {**all, "plans": [{**all["plans"][0], "model": "a\nb"}]},
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_an_index_of_another_form(tmp_path: Path, damage: Callable[[dict], object]) -> None:
    (one,) = stored(tmp_path, text())
    path = tmp_path / index.NAME
    path.write_text(json.dumps(damage(json.loads(path.read_text()))))
    with pytest.raises(PlanIndexError, match="is no index of format 1"):
        find(Catalog(tmp_path), one)


@pytest.mark.parametrize("data", [b"", b"\xff\xfe", b"nonsense", b"[" * 200_000, b'{"format": 1, "plans": ['])
def test_an_index_that_is_no_json(tmp_path: Path, data: bytes) -> None:
    (one,) = stored(tmp_path, text())
    (tmp_path / index.NAME).write_bytes(data)
    with pytest.raises(PlanIndexError, match="is no JSON"):
        find(Catalog(tmp_path), one)


def test_an_index_of_a_newer_format(tmp_path: Path) -> None:
    (tmp_path / index.NAME).write_text('{"format": 2, "sides": {}}')
    with pytest.raises(PlanIndexError, match="has format 2, this kvplan reads 1"):
        Catalog(tmp_path).entries()


@pytest.mark.parametrize(
    "path",
    ["../plan0.py", "/plan0.py", "a/../plan0.py", "./plan0.py", "a//b.py", "a\\b.py", "plan0", "..", "/", "a/"],
)
def test_paths_that_leave_the_directory(tmp_path: Path, path: str) -> None:
    (one,) = stored(tmp_path, text())
    (tmp_path / index.NAME).write_text(index.render([replace(one, path=path)]))
    with pytest.raises(PlanIndexError, match="path"):
        find(Catalog(tmp_path), one)


def test_symbolic_links(tmp_path: Path) -> None:
    for name in ("in", "out"):
        (tmp_path / name).mkdir()
    (one,) = stored(tmp_path / "out", text())
    (tmp_path / "in" / index.NAME).write_text(index.render([one]))
    link = tmp_path / "in" / one.path
    link.symlink_to(tmp_path / "out" / one.path)
    with pytest.raises(PlanIndexError, match="leads out of the directory"):
        find(Catalog(tmp_path / "in"), one)
    link.unlink()
    link.symlink_to(link)
    with pytest.raises(PlanIndexError, match="cannot be read"):
        find(Catalog(tmp_path / "in"), one)
    link.unlink()
    (tmp_path / "in" / "kept").mkdir()
    (tmp_path / "in" / "kept" / "real.py").write_text(text())
    link.symlink_to("kept/real.py")
    assert find(Catalog(tmp_path / "in"), one).digest == one.plan
    (tmp_path / "again").symlink_to("in")
    assert find(Catalog(tmp_path / "again"), one).digest == one.plan


@pytest.mark.parametrize("which", ["index", "plan"])
@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_plain_file(tmp_path: Path, make: Callable[[Path], None], which: str) -> None:
    (one,) = stored(tmp_path, text())
    path = tmp_path / (index.NAME if which == "index" else one.path)
    path.unlink()
    make(path)
    with pytest.raises(PlanIndexError, match=r"is no plain file|cannot be read"):
        find(Catalog(tmp_path), one)


def test_a_file_is_no_catalog_and_a_directory_may_come_later(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanIndexError, match="is no directory"):
        Catalog(tmp_path / "file")
    catalog = Catalog(tmp_path / "later")
    assert catalog.entries() == ()
    (tmp_path / "later").mkdir()
    (one,) = stored(tmp_path / "later", text())
    assert find(catalog, one).digest == one.plan


def test_a_side_before_anybody_is_met(tmp_path: Path) -> None:
    entries = stored(tmp_path, text(2, 1), text(1, 2))
    catalog = Catalog(tmp_path)
    with pytest.raises(PlanIndexError, match=f"several prefill sides p: .*{entries[0].prefill[0]}"):
        catalog.side("prefill", "p")
    with pytest.raises(PlanMissingError, match=r"no prefill side q of any model \(there are: p\)"):
        catalog.side("prefill", "q")
    with pytest.raises(PlanMissingError, match="no 'prefil' side"):
        catalog.side("prefil", "p")  # type: ignore[arg-type]
    with pytest.raises(PlanMissingError, match="holds no plans: give the directory"):
        Catalog(tmp_path / "too" / "deep").side("prefill", "p")
    with pytest.raises(PlanMissingError, match="kvplan compile m --prefill tp=2 --decode tp=2"):
        catalog.side("decode", "tp=2", "m")
    (tmp_path / index.NAME).write_text(index.render(entries[:1]))
    assert catalog.side("prefill", "p").digest == entries[0].prefill[0]
    assert catalog.side("decode", "d", "m").digest == entries[0].decode[0]


def test_models_that_have_a_side(tmp_path: Path) -> None:
    one, other = stored(tmp_path, text(2, 1), text(1, 2))
    fixed = plans_of(map(load_plan, sorted(tmp_path.glob("*.py"))))
    for plans in (Catalog(tmp_path), fixed):
        assert plans.models("prefill", one.prefill[0]) == {("m", one.model_digest)}
        assert plans.models("decode", other.decode[0]) == {("m", one.model_digest)}
        assert plans.models("decode", "x") == frozenset()


def test_plans_of_what_a_caller_has(tmp_path: Path) -> None:
    one, other = plan(Shape(2), Shape(1)), plan(Shape(1), Shape(1))
    assert plans_of(one) == FixedPlans((one,))
    assert plans_of(iter([one, other])) == FixedPlans((one, other))
    fixed = FixedPlans((one,))
    assert plans_of(fixed) is fixed
    assert isinstance(plans_of(tmp_path), Catalog)
    (tmp_path / "plan.py").write_text(text())
    assert isinstance(plans_of(str(tmp_path / "plan.py")), FixedPlans)
    sides = [(side.digest, side.key) for side in (other.prefill, other.decode)]
    assert plans_of([one, other]).find("m", "md", *sides) is other
    with pytest.raises(PlanMissingError):
        fixed.find("m", "md", *sides)
    for wrong in (None, 3, [], [one, 3], {"a": 1}, b"plans"):
        with pytest.raises(PlanLoadError, match="is no plan, plans or plans directory"):
            plans_of(wrong)


def test_the_printed_command_makes_the_plan(tmp_path: Path, made: index.IndexEntry) -> None:
    out = tmp_path / "it's a $(touch folder); plans"
    catalog = Catalog(out)
    with pytest.raises(PlanMissingError) as caught:
        find(catalog, made)
    line = str(caught.value).splitlines()[-1]
    assert shlex.split(line)[0] == "kvplan"
    shell = f'kvplan() {{ {shlex.quote(sys.executable)} -m kvplan.cli "$@"; }}; {line}'
    subprocess.run(["sh", "-c", shell], check=True, capture_output=True, cwd=tmp_path)
    assert find(catalog, made).digest == made.plan
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_the_printed_command_has_the_options(tmp_path: Path) -> None:
    spread = compiled(tmp_path, "--elect", "spread")
    assert spread.unusual == ("elect",)
    with pytest.raises(PlanMissingError):
        find(Catalog(tmp_path), spread)
    with pytest.raises(PlanMissingError, match="--elect spread"):
        find(Catalog(tmp_path / "other", options={"elect": "spread"}), spread)
    assert find(Catalog(tmp_path, options={"elect": "spread"}), spread).digest == spread.plan


def test_a_plan_that_was_compiled_for_a_machine_is_found_by_it(tmp_path: Path) -> None:
    machine = {"strategy": "auto", "machine": "xeon-2-cores-shared-memory"}
    made = compiled(tmp_path, *(word for name, value in machine.items() for word in (f"--{name}", value)))
    assert set(made.unusual) == set(machine)
    assert find(Catalog(tmp_path, options=machine), made).digest == made.plan
    with pytest.raises(PlanMissingError, match=r"there is one with machine=xeon-2-cores-shared-memory, strategy=auto:"):
        find(Catalog(tmp_path), made)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that are run, in this process."""
    seen: list[list[str]] = []

    def counted(argv: list[str], **rest: Any) -> subprocess.CompletedProcess[bytes]:
        assert "shell" not in rest
        assert argv[:4] == [sys.executable, "-P", "-m", "kvplan.cli"]
        seen.append(argv)
        done = CliRunner().invoke(main, argv[4:])
        return subprocess.CompletedProcess(argv, done.exit_code, done.stdout_bytes, done.stderr_bytes)

    monkeypatch.setattr(subprocess, "run", counted)
    return seen


def test_a_missing_plan_is_made_once_for_all_who_ask(tmp_path: Path, made: index.IndexEntry, runs: list) -> None:
    catalog = Catalog(tmp_path / "plans", Jit(60))
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: find(catalog, made), range(8)))
    assert {one.digest for one in found} == {made.plan}
    assert len(runs) == 1


def test_processes_that_ask_for_one_plan_at_once_have_it_made_once(
    tmp_path: Path, made: index.IndexEntry, runs: list
) -> None:
    """The workers of an engine do this: each has its own catalog."""
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find(Catalog(tmp_path / "plans", Jit(60)), made), range(4)))
    assert {one.digest for one in found} == {made.plan}
    assert len(runs) == 1


def test_a_missing_side_is_made(tmp_path: Path, runs: list) -> None:
    catalog = Catalog(tmp_path, Jit(60))
    side = catalog.side("decode", "tp=2,order=nhd", MODEL)
    assert side.key != "tp=2,order=nhd"
    assert catalog.side("decode", side.key) == side
    assert len(runs) == 1


def test_digests_that_do_not_come_of_the_command(tmp_path: Path, made: index.IndexEntry, runs: list) -> None:
    catalog = Catalog(tmp_path, Jit(60))
    for _ in range(3):
        with pytest.raises(PlanMissingError, match=r"tp=1 \(other\).*\n.*\n.*of one kvplan"):
            find(catalog, replace(made, prefill=("other", made.prefill[1])))
    assert len(runs) <= 2


def test_a_refused_pair_is_tried_once(tmp_path: Path, made: index.IndexEntry, runs: list) -> None:
    catalog = Catalog(tmp_path, Jit(60))
    for _ in range(3):
        with pytest.raises(PlanMissingError, match=r"exit code 3, [A-Z]\d{3}: .*cannot"):
            find(catalog, replace(made, prefill=("x", "tp=3")))
    assert len(runs) == 1


def test_peers_cannot_have_any_number_of_plans_made(tmp_path: Path, made: index.IndexEntry, runs: list) -> None:
    catalog = Catalog(tmp_path, Jit(60, most=1))
    find(catalog, made)
    with pytest.raises(PlanMissingError, match="no more are made"):
        find(catalog, replace(made, prefill=("x", "tp=2")))
    assert find(catalog, made).digest == made.plan
    assert len(runs) == 1


def test_a_compiler_that_does_not_end(tmp_path: Path, made: index.IndexEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    catalog = Catalog(tmp_path / "plans", Jit(0.3))
    began = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        errors = [asked.exception() for asked in [pool.submit(find, catalog, made) for _ in range(3)]]
    assert time.monotonic() - began < 60
    assert {type(error) for error in errors} == {PlanMissingError}
    assert any("not done within 0.3 s" in str(error) for error in errors)


def test_a_compiler_that_is_not_there(tmp_path: Path, made: index.IndexEntry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "absent"))
    with pytest.raises(PlanMissingError, match="cannot be run"):
        find(Catalog(tmp_path, Jit(5)), made)


def test_a_directory_that_cannot_be_written(tmp_path: Path, made: index.IndexEntry) -> None:
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "qwen3_0_6b").write_text("a file where a directory must be")
    with pytest.raises(PlanMissingError, match=r"exit code 2, R006: .* cannot be written"):
        find(Catalog(tmp_path / "plans", Jit(60)), made)


@pytest.mark.parametrize(
    "model", ["", "-o", "--help", "a b", "a;b", "$(id)", "../a", "a/b.yaml", "b.yaml", "a\nb", "a\0b", "é", "a" * 200]
)
def test_names_of_models_that_a_peer_may_not_send(
    tmp_path: Path, made: index.IndexEntry, model: str, runs: list
) -> None:
    with pytest.raises(PlanMissingError, match="is no name of a model"):
        find(Catalog(tmp_path, Jit(60)), replace(made, model=model))
    assert not runs
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize(
    "key", ["", "-o", "--out=x", "tp=1 -o x", "tp=1;id", "`id`", "tp=1/2", "tp=\n1", "é", "t" * 2000]
)
def test_keys_that_a_peer_may_not_send(tmp_path: Path, made: index.IndexEntry, key: str, role: str, runs: list) -> None:
    sent: dict[str, Any] = {role: ("x", key)}
    with pytest.raises(PlanMissingError, match="is no key of a side"):
        find(Catalog(tmp_path, Jit(60)), replace(made, **sent))
    assert not runs


@pytest.mark.parametrize("digest", ["", "a b", "x); make it with\nrm -rf plans", "\x1b[2J", "é", "a" * 65])
def test_digests_that_a_peer_may_not_send(tmp_path: Path, made: index.IndexEntry, digest: str) -> None:
    for one in (
        replace(made, model_digest=digest),
        replace(made, prefill=(digest, "tp=1")),
        replace(made, decode=(digest, "tp=1")),
    ):
        with pytest.raises(PlanMissingError, match="is no digest") as caught:
            find(Catalog(tmp_path), one)
        assert str(caught.value).isascii()
        assert str(caught.value).isprintable()


def test_layouts_of_ones_own_are_in_the_command(tmp_path: Path, made: index.IndexEntry) -> None:
    words = jit.command(MODEL, PREFILL, DECODE, [("elect", "spread")], ["my layouts"], Path("plans"))
    assert shlex.split(jit.shown(words))[1:] == [
        "compile", MODEL, "--prefill", PREFILL, "--decode", DECODE, "--elect", "spread", "--layouts", "my layouts",
        "-o", "plans",
    ]  # fmt: skip


def test_keys_of_every_committed_plan_can_be_sent() -> None:
    files = ROOT.glob("examples/plans/*/*.py")
    for found in map(plans_of, files):
        assert isinstance(found, FixedPlans)
        one = found.plans[0]
        assert jit.command(one.model, one.prefill.key, one.decode.key, (), (), Path("x"))


HEAVY = "zmq", "msgspec", "click", "yaml", "torch"


def test_numpy_is_enough() -> None:
    code = f"import sys, kvplan.runtime.plans.catalog; print(set({HEAVY}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_garbage_is_refused_by_name(tmp_path: Path) -> None:
    """With any byte changed (every third is tried), an index is the same, another one, or refused."""
    (one,) = stored(tmp_path, text())
    data = bytearray((tmp_path / index.NAME).read_bytes())
    for place in range(0, len(data), 3):
        for value in (0x22, data[place] ^ 1):
            changed = data.copy()
            changed[place] = value
            (tmp_path / index.NAME).write_bytes(changed)
            try:
                found = Catalog(tmp_path).look(one.model_digest, one.prefill[0], one.decode[0])
            except KvplanError:
                continue
            assert found is None or found.digest == one.plan
