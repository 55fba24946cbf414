"""kvplan check of files that are one's own."""

from __future__ import annotations

import shutil
from pathlib import Path

from click.testing import CliRunner
from tests.paths import ROOT

from kvplan.cli.main import main

SHIPPED = ROOT / "layouts" / "models" / "gemma-3-27b.yaml"


def test_a_copy_of_a_shipped_file_needs_another_name(tmp_path: Path) -> None:
    copy = tmp_path / SHIPPED.name
    shutil.copy(SHIPPED, copy)
    said = CliRunner().invoke(main, ["check", str(tmp_path)])
    note = f"note: {copy} is a copy of kvplan's own file: give its model another name before you edit it"
    assert (said.exit_code, note in said.stderr) == (0, True)
    copy.write_text(copy.read_text().replace("model: gemma-3-27b", "model: ours"))
    copy.rename(tmp_path / "ours.yaml")
    assert CliRunner().invoke(main, ["check", str(tmp_path)]).stderr == ""
    assert CliRunner().invoke(main, ["check", str(SHIPPED)]).stderr == ""
