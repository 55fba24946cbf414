"""Routers' requests, joined answers, and servers that end with their parent: all without an engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.paths import ROOT
from tests.vllm import environment
from tests.vllm.cases import Call, Router
from tests.vllm.process import alive, wait_until
from tests.vllm.routers import LEGS
from tests.vllm.serve import CALLS, read

ASKED = {"messages": [], "max_completion_tokens": 9, "min_tokens": 9, "stream": True, "stream_options": {}}
HELD = {"do_remote_prefill": True, "remote_port": 7600}


@pytest.mark.parametrize(
    ("router", "limits"),
    [
        (Router.TOY, {"max_tokens": 1, "max_completion_tokens": 1}),
        (Router.LLM_D, {"max_tokens": 1, "max_completion_tokens": 1}),
        (Router.LLM_D_2025, {"max_tokens": 1, "max_completion_tokens": 9, "min_tokens": 9}),
    ],
)
def test_prefill_is_asked_for_one_token(router: Router, limits: dict) -> None:
    sent = LEGS[router].prefill(ASKED)
    assert sent.pop("kv_transfer_params")["do_remote_decode"]
    assert sent == {"messages": [], "stream": False, **limits}


@pytest.mark.parametrize("router", Router)
def test_decode_is_asked_as_the_client_asks_with_what_prefill_said(router: Router) -> None:
    assert LEGS[router].decode(ASKED, {"kv_transfer_params": HELD}) == {**ASKED, "kv_transfer_params": HELD}


def test_where_prefill_says_nothing_routers_differ() -> None:
    assert "kv_transfer_params" not in LEGS[Router.TOY].decode(ASKED, {})
    assert LEGS[Router.LLM_D].decode(ASKED, {})["kv_transfer_params"] is None


def test_pieces_of_an_answer_are_one_answer() -> None:
    completion = [
        {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0, -2.0]}},
        {"token_ids": [7], "logprobs": {"token_logprobs": [-3.0]}, "finish_reason": "length"},
    ]
    chat = [{"token_ids": [5], "logprobs": {"content": [{"logprob": -1.0}]}, "finish_reason": None}]
    assert read(completion) == {"tokens": [5, 6, 7], "logprobs": [-1.0, -2.0, -3.0], "reason": "length"}
    assert read(chat) == {"tokens": [5], "logprobs": [-1.0], "reason": None}
    assert read([])["tokens"] == []


def test_every_call_is_played() -> None:
    assert set(CALLS) == set(Call)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_ends_with_its_children_when_who_started_it_is_gone(how: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS, str(tmp_path)]
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}) as starter:
        pids = [tmp_path / "guard", tmp_path / "child", tmp_path / "grandchild"]
        assert wait_until(lambda: all(path.exists() and path.read_text() for path in pids), 60)
        starter.send_signal(how)
    assert wait_until(lambda: not [path for path in pids if alive(int(path.read_text()))], 30)


# A child that ignores SIGTERM, and a child of that.
STARTS = """
import os, signal, subprocess, sys, time
from tests.vllm import forks

def work():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    grandchild = subprocess.Popen(["sleep", "600"])
    open(f"{sys.argv[1]}/child", "w").write(str(os.getpid()))
    open(f"{sys.argv[1]}/grandchild", "w").write(str(grandchild.pid))
    time.sleep(600)

forks.fork(f"{sys.argv[1]}/log", lambda: forks.ending_together(work, f"{sys.argv[1]}/guard"))
time.sleep(600)
"""


def test_a_toy_proxy_that_cannot_be_had_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "TOY_PROXY", "http://127.0.0.1:9/{}")
    monkeypatch.setattr(environment, "do", lambda *command: "0.0\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("KVPLAN_TOY_PROXY", raising=False)
    with pytest.raises(environment.UnavailableError, match=r"127\.0\.0\.1:9/0\.0"):
        environment.toy_proxy(Path("python"))
