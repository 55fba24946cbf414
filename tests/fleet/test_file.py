"""A static fleet in a file: what `kvplan fleet --format json` prints, or what somebody wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.fleet.test_records import record

from kvplan.fleet.errors import FleetError
from kvplan.fleet.file import read_fleet
from kvplan.fleet.records import EngineState

WRITTEN = """
engines:
  - {name: p0, role: prefill, model: m, model_digest: "0123", side: "4567", side_key: tp=1, free_blocks: 7}
  - {name: d0, role: decode, model: m, model_digest: "0123", side: "89ab", side_key: tp=2, state: draining}
"""


def test_what_was_printed_is_read(tmp_path: Path) -> None:
    both = [record("p0", free_blocks=3), record("d0", state=EngineState.DRAINING)]
    path = tmp_path / "fleet.json"
    path.write_bytes(msgspec.json.encode({"engines": both, "pairs": []}))
    assert read_fleet(path).engines() == {one.name: one for one in both}


def test_what_somebody_wrote(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(WRITTEN)
    engines = read_fleet(path).engines()
    assert (engines["p0"].free_blocks, engines["p0"].run, engines["d0"].state) == (7, "p0", EngineState.DRAINING)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "has no list of engines"),
        ("engines: 7", "has no list of engines"),
        ("[]", "has no list of engines"),
        ("engines: [7]", "engine 1 is a int"),
        ("engines: [", "is no list of engines"),
        (WRITTEN.replace("state: draining", "stat: draining"), "engine 2 has stat: its fields are"),
        (WRITTEN.replace("draining", "asleep"), "engine 2 is no record: Invalid enum value 'asleep'"),
        (WRITTEN.replace('"0123"', "0123"), r"engine 1 is no record: .*model_digest"),
        (WRITTEN.replace("name: p0, ", ""), "engine 1 is no record"),
        (WRITTEN.replace("free_blocks: 7", "format: 9"), "engine 1 has format 9, this kvplan reads 1: use a newer one"),
        (WRITTEN.replace("free_blocks: 7", "started: .nan"), "engine 1 has started nan: write seconds"),
        (WRITTEN.replace("state: draining", "started: -.inf"), "engine 2 has started -inf: write seconds"),
        (WRITTEN.replace("name: d0", "name: p0"), "two engines are named p0"),
    ],
)
def test_what_is_no_fleet(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text(text)
    with pytest.raises(FleetError, match=told):
        read_fleet(path)
    with pytest.raises(FleetError, match=r"none\.yaml cannot be read: No such file"):
        read_fleet(tmp_path / "none.yaml")
