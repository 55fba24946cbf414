"""`kvplan matrix` as a user runs it: three forms of the same cells, refusals below, exit codes."""

from __future__ import annotations

import csv
import io
import json

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.commands.matrix import LEGEND, STAGED, size, text
from kvplan.cli.main import main
from kvplan.cli.terminal import PAGE
from kvplan.compiler.explain.matrix import MatrixCell, RefusalReason

FIVE = "tp=1/2/4/8/16"
SOME = ("--prefill", "tp=1/3/5", "--decode", "tp=2,kv_dtype=bf16/fp8")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["matrix", "llama-3.1-8b", *words])


def test_five_by_five_fits_and_every_row_has_its_three_numbers() -> None:
    said = run("--prefill", FIVE, "--decode", FIVE)
    lines = said.stdout.splitlines()
    assert said.exit_code == 0
    assert max(map(len, lines)) <= PAGE
    assert lines[2].split() == ["prefill", "\\", "decode", *(f"tp={n}" for n in (1, 2, 4, 8, 16))]
    table = lines[3 : lines.index(LEGEND[0])]
    for word, cells in {"descriptors": 5, "bytes": 10, "shortest": 10}.items():
        assert [len(line.split(word)[1].split()) for line in table if word in line] == [cells] * 5
    assert "tp=16             descriptors   16,384   16,384   16,384   16,384   32,768" in lines


def test_descriptors_of_a_stage_are_explained() -> None:
    """They are longer than the shortest span beside them."""
    sides = "--prefill", "tp=2", "--decode", "tp=4,order=nhd"
    assert [STAGED in run(*sides, *more).stdout for more in ((), ("--strategy", "auto"))] == [False, True]


def test_a_wide_table_falls_to_one_line_a_pair() -> None:
    said = run("--prefill", "tp=1/2", "--decode", "tp=1/2/4/8,order=LBHNC/LBNHC/BLHNC")
    lines = said.stdout.splitlines()
    assert lines[2].split() == ["prefill", "decode", "descriptors", "bytes", "shortest"]
    assert lines[3].split() == ["tp=1", "tp=1,order=LBHNC", "2,048", "128", "MiB", "64", "KiB"]
    assert sum(line.startswith("tp=") for line in lines) == 2 * 12


def test_what_all_sides_share_is_said_once() -> None:
    said = run("--prefill", "tp=1/2,order=nhd", "--decode", "tp=4,order=nhd")
    assert "every prefill side: order=nhd" in said.stdout.splitlines()
    assert said.stdout.count("order=nhd") == 2
    assert "\ntp=2  " in said.stdout


def test_reasons_stand_once_below_the_table() -> None:
    said = run(*SOME)
    assert said.exit_code == 0
    assert said.stdout.count("\nC134: ") == 1
    assert [said.stdout.count(f"cannot be divided among tp={n}") for n in (3, 5)] == [1, 1]
    assert [line.split() for line in said.stdout.splitlines() if line.startswith("tp=3")] == [
        ["tp=3", "refused", "C110a", "C110a"]
    ]


def test_letters_link_cells_to_the_reasons_of_one_code() -> None:
    lines = run(*SOME).stdout.splitlines()
    cells = {line.split()[0]: line.split()[2:] for line in lines if " refused " in line}
    reasons = {line.split(": ")[0]: line[-4:] for line in lines if line.startswith("C1")}
    assert {(side, reasons[code]) for side, codes in cells.items() for code in codes} == {
        ("tp=3", "tp=3"),
        ("tp=5", "tp=5"),
    }
    assert set(reasons) == {"C134", "C110a", "C110b"}


def test_letters_go_on_behind_z() -> None:
    reasons = [RefusalReason("C110", f"{n}", "") for n in range(60)]
    cells = tuple(MatrixCell("tp=1", f"tp={n}", reason) for n, reason in enumerate(reasons, 1))
    lines = text("m", cells).splitlines()
    found = [line.split(": ")[0] for line in lines if line.startswith("C110")]
    assert len(set(found)) == 60
    assert (found[0], found[25], found[26], found[52]) == ("C110a", "C110z", "C110aa", "C110ba")


def test_json_and_csv_have_the_same_exact_numbers() -> None:
    answer = json.loads(run(*SOME, "--format", "json").stdout)
    rows = list(csv.DictReader(io.StringIO(run(*SOME, "--format", "csv").stdout)))
    assert len(answer["cells"]) == len(rows) == 6
    for cell, row in zip(answer["cells"], rows, strict=True):
        assert {name: str(value) for name, value in cell.items()} == {name: row[name] for name in cell}
    assert answer["cells"][0] == {
        "prefill": "tp=1", "decode": "tp=2,kv_dtype=bf16",
        "descriptors": 2 * 32 * 64, "bytes": 1024 * 32 * 8 * 512, "shortest_span": 4 * 16 * 512,
    }  # fmt: skip
    told = {(refusal["code"], tuple(map(tuple, refusal["pairs"]))) for refusal in answer["refusals"]}
    refused = {("tp=1", "tp=2,kv_dtype=fp8"): "C134", **{(r["prefill"], r["decode"]): "C110" for r in rows[2:]}}
    assert {pair: code for code, pairs in told for pair in pairs} == refused
    assert len(told) == 3
    assert all(row["reason"] for row in rows if row["refused"])
    helps = {(p, d): refusal["help"] for refusal in answer["refusals"] for p, d in refusal["pairs"]}
    assert {(row["prefill"], row["decode"]): row["help"] for row in rows if row["refused"]} == helps
    assert all(helps.values())


@pytest.mark.parametrize("side", ["tpp=1", "tp=x", "tp=3/"])
def test_a_typo_is_an_error_of_the_command(side: str) -> None:
    said = run("--prefill", "tp=3", "--decode", side, "--format", "json")
    assert said.exit_code == 2
    assert json.loads(said.stdout)["error"]["code"].startswith("S0")


def test_a_matrix_of_refusals_is_an_answer() -> None:
    said = run("--prefill", "tp=3", "--decode", "tp=3")
    assert said.exit_code == 0
    assert "refused" in said.stdout
    assert "neighbours" not in said.stdout


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (512, "512 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (2**27, "128 MiB"), (3 * 2**51, "6,144 TiB")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text
