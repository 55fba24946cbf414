"""kvplan keys: makes a key pair, and never the same one twice."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.runtime.control.keys import Keys


def test_the_verb(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["keys", "a", "-o", str(tmp_path / "new")])
    assert (said.exit_code, said.output.count("wrote ")) == (0, 2)
    secret, public = tmp_path / "new/a.key_secret", tmp_path / "new/a.key"
    assert len(Keys.load(secret, public).peers) == 1
    again = CliRunner().invoke(main, ["keys", "a", "-o", str(tmp_path / "new")])
    assert again.exit_code == 2
    assert "error[R022]" in again.stderr
    assert "exists" in again.stderr
