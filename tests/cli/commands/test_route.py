"""kvplan route: what it is told of engines, and that it serves until it is told to end."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from click.testing import CliRunner

from kvplan.cli import extras
from kvplan.cli.main import main

ENGINES = ("--prefill", "http://127.0.0.1:9", "--decode", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "Missing option '--prefill'"),
        (("--prefill", "127.0.0.1:8000", "--decode", "http://a"), "is no URL of an engine, as http://127.0.0.1:8000"),
        ((*ENGINES, "--silence", "0"), "0.0 is not in the range x>0"),
    ],
)
def test_what_is_no_engine_is_refused(words: tuple[str, ...], text: str) -> None:
    result = CliRunner().invoke(main, ["route", *words])
    assert result.exit_code == 2
    assert text in " ".join(result.output.split())


def test_an_extra_that_is_lacking_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda module: None)
    result = CliRunner().invoke(main, ["route", *ENGINES])
    assert result.exit_code == 2
    assert "error[S033]: aiohttp is not installed\n   = pip install 'kvplan[route]'" in result.output


def test_it_serves_until_it_is_told_to_end() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    command = [sys.executable, "-m", "kvplan.cli", "route", *ENGINES, "--port", port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            began = process.stdout.readline()
            assert began == f"http://127.0.0.1:{port}: prefill http://127.0.0.1:9, decode http://127.0.0.1:9\n"
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        result = CliRunner().invoke(main, ["route", *ENGINES, "--port", port])
    assert result.exit_code == 2
    assert f"cannot listen at 127.0.0.1:{port}: " in result.output
