"""Plans on disk: stale ones are found, and written whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.deploy import files
from kvplan.plan.files import folder

TEXTS = {"m/p_a__d_b.py": "one\n", "m/p_a__d_c.py": "two\n"}


def test_missing_and_changed_files_are_stale(tmp_path: Path) -> None:
    assert files.stale(tmp_path, TEXTS) == sorted(TEXTS)
    folder.write(tmp_path, TEXTS, TEXTS)
    assert files.stale(tmp_path, TEXTS) == []
    assert files.stale(tmp_path, {**TEXTS, "m/p_a__d_c.py": "three\n"}) == ["m/p_a__d_c.py"]


def test_line_ends_count(tmp_path: Path) -> None:
    folder.write(tmp_path, TEXTS, TEXTS)
    (tmp_path / "m/p_a__d_b.py").write_bytes(b"one\r\n")
    assert files.stale(tmp_path, TEXTS) == ["m/p_a__d_b.py"]


def test_nothing_half_written_is_left(tmp_path: Path) -> None:
    folder.write(tmp_path, TEXTS, TEXTS)
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["p_a__d_b.py", "p_a__d_c.py"]


def test_only_what_is_named_is_written(tmp_path: Path) -> None:
    folder.write(tmp_path, TEXTS, ["m/p_a__d_b.py"])
    assert not (tmp_path / "m/p_a__d_c.py").exists()


@pytest.mark.parametrize(("old", "expected"), [("one\n", ["-one", "+two"]), ("", ["+two"])])
def test_diff_goes_from_disk_to_compiled(tmp_path: Path, old: str, expected: list[str]) -> None:
    (tmp_path / "x.py").write_text(old)
    lines = files.unified(tmp_path, "x.py", "two\n").splitlines()
    assert lines[0].endswith("(on disk)")
    assert lines[3:] == expected
