"""kvplan store: what is there, what is wrong, what goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.store.engines import full, keys_of, save

from kvplan.cli.main import main
from kvplan.store.store import INDEX, OBJECTS, Store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with Store.open(tmp_path / "store") as store:
        save(store, full("toy-mamba2", "tp=2", 3), keys_of(3))
    return tmp_path / "store"


def run(*words: object) -> Result:
    return CliRunner().invoke(main, ["store", *map(str, words)])


def test_ls(folder: Path) -> None:
    said = run("ls", folder)
    assert said.stdout.splitlines()[0].startswith("4 objects, ")
    assert [line.split()[:2] for line in said.stdout.splitlines()[1:]] == [["attention", "3"], ["mamba", "1"]]
    every = json.loads(run("ls", folder, "--format", "json").stdout)
    assert sorted(row["tokens"] for row in every) == [16, 32, 48, 48]


def test_a_store_that_may_only_be_read_is_not_empty(folder: Path) -> None:
    """Its index cannot be opened, and what is there is counted all the same."""
    for path in folder.glob(f"{INDEX}*"):
        path.unlink()
    (folder / INDEX).mkdir()
    assert run("ls", folder).stdout.startswith("4 objects, ")


def test_verify_finds_what_is_wrong_and_removes_it(folder: Path) -> None:
    assert run("verify", folder).stdout == "4 objects: all as they were written\n"
    bad = sorted((folder / OBJECTS).glob("*/*/*.attention"))[0]
    bad.write_bytes(bad.read_bytes()[:-1])
    said = run("verify", folder)
    assert said.exit_code == 1
    assert "error[R061]: " in said.stdout
    assert said.stdout.endswith("4 objects: 1 wrong\n")
    told = json.loads(run("verify", folder, "--remove", "--format", "json").stdout)
    assert [wrong["code"] for wrong in told["wrong"]] == ["R061"]
    assert run("verify", folder).stdout == "3 objects: all as they were written\n"


def test_gc(folder: Path) -> None:
    assert run("gc", folder).stdout.startswith("removed 0 objects, 0 B; 4 objects, ")
    assert run("gc", folder, "--age", "1h", "--max-bytes", "1TB").stdout.startswith("removed 0 objects")
    assert run("gc", folder, "--max-bytes", "1").stdout.endswith("; 0 objects, 0 B left\n")
    assert run("ls", folder).stdout == "0 objects, 0 B\n"


@pytest.mark.parametrize("words", [("--max-bytes", "much"), ("--age", "3x"), ("--age", "-1d")])
def test_amounts_that_are_none(folder: Path, words: tuple[str, str]) -> None:
    said = run("gc", folder, *words)
    assert said.exit_code == 2


def test_looking_makes_no_store(tmp_path: Path) -> None:
    said = run("ls", tmp_path)
    assert said.exit_code == 2
    assert "is no store" in said.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_store_at_a_url(tmp_path: Path) -> None:
    url = f"memory://cli/{tmp_path.name}"
    with Store.at(url) as store:
        save(store, full("toy-mamba2", "tp=2", 3), keys_of(3))
    assert run("ls", url).stdout.startswith("4 objects, ")
    assert run("verify", url).stdout == "4 objects: all as they were written\n"
    assert run("ls", url, "--index", tmp_path / "index").stdout == "0 objects, 0 B\n"
    assert run("gc", url, "--index", tmp_path / "index", "--age", "1h").stdout.startswith("removed 0 objects")
    assert run("ls", url, "--index", tmp_path / "index").stdout.startswith("4 objects, ")
    assert run("gc", url, "--age", "0s").stdout.endswith("; 0 objects, 0 B left\n")
    assert run("ls", url).stdout == "0 objects, 0 B\n"
    refused = run("ls", "nothing://there")
    assert (refused.exit_code, "error[R067]" in refused.stderr) == (2, True)


def test_a_folder_has_its_own_index(folder: Path, tmp_path: Path) -> None:
    assert "is for URLs" in run("ls", folder, "--index", tmp_path / "index").stderr
