"""Colours where somebody sees them, lines as wide as there is room, and no silence: never in what a program reads."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from collections.abc import Mapping

import pytest
from click.testing import CliRunner
from tests.cli.forked import forked

from kvplan.cli import progress
from kvplan.cli.main import main

ESCAPE = "\x1b["
REFUSED = ["explain", "llama-3.1-8b", "--prefill", "tp=3", "--decode", "tp=1"]
PAIR = ["explain", "llama-3.1-8b", "--prefill", "tp=2", "--decode", "tp=1"]


def on_terminal(*words: str, columns: int = 200, environment: Mapping[str, str] | None = None) -> str:
    """Return everything that the command writes to a terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (50, columns))

    def on() -> None:
        for name in ("NO_COLOR", "COLUMNS"):
            os.environ.pop(name, None)
        os.environ.update({"TERM": "xterm", **(environment or {})})

    child = forked(words, theirs, on)
    os.close(theirs)
    text = b""
    while chunk := _read(ours):
        text += chunk
    os.close(ours)
    os.waitpid(child, 0)
    return text.decode()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # the other end was closed
        return b""


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_colours_on_a_terminal_only() -> None:
    seen = on_terminal(*REFUSED)
    assert f"{ESCAPE}31m{ESCAPE}1merror[C110]" in seen
    assert ESCAPE not in CliRunner().invoke(main, REFUSED).output


@pytest.mark.parametrize(("words", "environment"), [([], {"NO_COLOR": "1"}), (["--no-color"], {"NO_COLOR": ""})])
def test_no_colours_for_who_wants_none(words: list[str], environment: dict[str, str]) -> None:
    seen = on_terminal(*words, *REFUSED, environment=environment)
    assert "error[C110]" in seen
    assert ESCAPE not in seen


def test_colours_for_who_wants_them_anywhere() -> None:
    assert ESCAPE in CliRunner().invoke(main, ["--color", *PAIR], color=True).output
    assert ESCAPE not in CliRunner().invoke(main, ["--color", *PAIR, "--format", "json"], color=True).output


def test_lines_are_as_wide_as_the_terminal() -> None:
    words = ["explain", "nemotron-3-nano-30b"]
    narrow, wide = plain(on_terminal(*words, columns=80)), plain(on_terminal(*words, columns=200))
    wrapped = [line for line in narrow.splitlines() if line.startswith("  or as")]
    assert wrapped
    assert max(map(len, wrapped)) <= 80
    assert len(narrow.splitlines()) > len(wide.splitlines())


def test_a_grid_that_a_terminal_has_no_room_for_is_a_list() -> None:
    words = ["matrix", "llama-3.1-8b", "--prefill", "tp=1/2/4", "--decode", "tp=1/2/4/8"]
    assert "prefill \\ decode" in plain(on_terminal(*words, columns=120))
    assert "prefill \\ decode" not in plain(on_terminal(*words, columns=60))


def test_a_bar_is_shown_where_it_takes_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At once, where patience is none; nothing of it is left in a text that is no terminal's."""
    monkeypatch.setattr(progress, "PATIENCE_S", 0.0)
    assert list(progress.watched([1, 2, 3])) == [1, 2, 3]
    assert capsys.readouterr() == ("", "")
    code = (
        "import time\nfrom kvplan.cli import progress\nprogress.PATIENCE_S = 0.0\n"
        "for n in progress.watched(['alpha', 'beta']):\n    time.sleep(0.4)\n"
    )
    ours, theirs = pty.openpty()
    run = subprocess.Popen([sys.executable, "-c", code], stderr=theirs, env={**os.environ, "TERM": "xterm"})
    os.close(theirs)
    text = b""
    while chunk := _read(ours):
        text += chunk
    os.close(ours)
    assert run.wait(60) == 0
    assert b"beta" in text


def test_steps_inside_a_step_are_a_line_of_their_own() -> None:
    with progress.progress() as bar:
        for _ in progress.stepped(bar, ["outer"]):
            inside = [task.description for _ in progress.stepped(bar, ["inner"]) for task in bar.tasks]
            assert inside == ["outer", "inner"]
            assert [task.description for task in bar.tasks] == ["outer"]
        assert not bar.tasks
