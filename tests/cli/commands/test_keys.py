"""kvplan keys: makes a key pair, and never the same one twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.main import main
from kvplan.registry import exchange
from kvplan.runtime.control.keys import Keys


def test_keys_that_sign_plans_for_push_and_pull(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "now", lambda: 1.0)

    def run(*words: object) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words])

    plans, keys, there, here = (tmp_path / name for name in ("plans", "keys", "there", "here"))
    pair = ("qwen3-0.6b", "--prefill", "tp=1", "--decode", "tp=2", "-o", plans)
    assert run("compile", *pair).exit_code == run("keys", "team", "--signing", "-o", keys).exit_code == 0
    assert run("push", plans, there, "--key", keys / "team.sign").output == "pushed 1 of 1 plans, index 1\n"
    done = run("pull", there, "-o", here, "--key", keys / "team.sign.pub")
    assert done.output == f"pulled 1 of 1 plans, index 1, into {here}\n"
    assert run("compile", *pair[:-1], here, "--check").exit_code == 0
    refused = run("pull", there, "-o", plans, "--key", keys)
    assert (refused.exit_code, "error[R006]" in refused.stderr) == (2, True)


def test_the_verb(tmp_path: Path) -> None:
    said = CliRunner().invoke(main, ["keys", "a", "-o", str(tmp_path / "new")])
    assert (said.exit_code, said.output.count("wrote ")) == (0, 2)
    secret, public = tmp_path / "new/a.key_secret", tmp_path / "new/a.key"
    assert len(Keys.load(secret, public).peers) == 1
    again = CliRunner().invoke(main, ["keys", "a", "-o", str(tmp_path / "new")])
    assert again.exit_code == 2
    assert "error[R022]" in again.stderr
    assert "exists" in again.stderr
