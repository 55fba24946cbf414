"""kvplan push and pull, from keys to a directory that engines read, and over a change of keys."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.runtime.plans.test_catalog import find, stored, text

from kvplan.cli.main import main
from kvplan.registry import exchange
from kvplan.runtime.plans.catalog import Catalog


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [*map(str, words)])


def test_a_key_takes_over_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "now", lambda: 1.0)
    keys, plans, url, here = (tmp_path / name for name in ("keys", "plans", "there", "here"))
    plans.mkdir()
    [one] = stored(plans, text())
    for name in ("old", "new"):
        assert run("keys", name, "--signing", "-o", keys).exit_code == 0
    assert run("push", plans, url, "--key", keys / "old.sign").output == "pushed 1 of 1 plans, index 1\n"
    refused = run("push", plans, url, "--key", keys / "new.sign")
    assert refused.exit_code == 2
    assert "error[R008]" in refused.stderr
    assert "--trusted" in refused.stderr
    words = ("--key", keys / "new.sign", "--trusted", keys / "old.sign.pub")
    assert run("push", plans, url, *words).output == "pushed 0 of 1 plans, index 2\n"
    done = run("pull", url, "--key", keys / "new.sign.pub", "-o", here)
    assert done.output == f"pulled 1 of 1 plans, index 2, into {here}\n"
    assert find(Catalog(here), one).digest == one.plan
