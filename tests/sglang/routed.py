"""Two SGLang servers behind `sglang-router`, as a user starts them: the pair's tokens against those of one server."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.sglang import environment
from tests.sglang.machines import SERVE, SERVED, flags
from tests.sglang.mixed_cases import drawn
from tests.vllm.pair import PORTS
from tests.vllm.process import EngineLost, Launcher, tail, wait_until
from tests.vllm.servers import Server
from tests.vllm.web import Body, HttpError, answers, post

LENGTHS, COUNT = (200, 37, 128, 300), 16
START_S, MADE_S = 60.0, 300.0
GENERATE, CHATS = "/generate", "/v1/chat/completions"
PAGES = {"prefill": 16, "decode": 64}


def routed(python: Path, folder: Path) -> tuple[str, str]:
    """The outcome of prompts that `sglang-router` sends to a pair with different page sizes: a word, and why."""
    ports = {name: next(PORTS) for name in ("alone", *PAGES, "router")}
    try:
        with ExitStack() as stack:
            launcher = stack.enter_context(Launcher(python, folder, module="tests.sglang.serve"))
            model = made(python, folder)
            for name in ("alone", *PAGES):
                served(stack, launcher, name, model, ports)
            start_router(stack, python, folder, ports)
            wrong = [why for ids in drawn(LENGTHS) if (why := compared(ports, ids))]
    except (EngineLost, HttpError, OSError) as error:
        return "failed", str(error)
    return ("wrong" if wrong else "right"), "; ".join(wrong)


def made(python: Path, folder: Path) -> Path:
    """The folder of a small model."""
    place = folder / "model"
    place.mkdir()
    code = f"from tests.vllm import models; models.make('qwen3', {str(place)!r})"
    paths = {"PYTHONPATH": environment.paths(folder)}
    subprocess.run([str(python), "-c", code], env={**os.environ, **paths}, check=True, timeout=MADE_S)
    return place


def served(stack: ExitStack, launcher: Launcher, name: str, model: Path, ports: Mapping[str, int]) -> None:
    """Start a server, and wait until it serves."""
    own: dict[str, Any] = {"page_size": 16}
    if name in PAGES:
        own = {"page_size": PAGES[name], "disaggregation_mode": name, "disaggregation_transfer_backend": "kvplan",
               "disaggregation_bootstrap_port": ports["prefill"] + 10}  # fmt: skip
    if name == "decode":
        own["disaggregation_decode_retraction_backup"] = "cpu_tensor"
    words = [*SERVE, str(model), *flags({**SERVED, "port": ports[name], **own})]
    server = Server(launcher, name, words, ports[name], {})
    stack.callback(server.close)
    server.wait_ready("/health")


def start_router(stack: ExitStack, python: Path, folder: Path, ports: Mapping[str, int]) -> None:
    """Start SGLang's router. Raises EngineLost."""
    prefill, decode = (f"http://127.0.0.1:{ports[name]}" for name in PAGES)
    engines = ["--pd-disaggregation", "--prefill", prefill, str(ports["prefill"] + 10), "--decode", decode]
    own = ["--host", "127.0.0.1", "--port", str(ports["router"]), "--prometheus-port", str(ports["router"] + 10)]
    log = stack.enter_context((folder / "router.log").open("w"))
    paths = {"PYTHONPATH": str(environment.router())}
    process = subprocess.Popen(
        [str(python), "-m", "sglang_router.launch_router", *engines, *own],
        env={**os.environ, **paths},
        stdout=log,
        stderr=log,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    if not wait_until(lambda: answers(ports["router"], "/readiness"), START_S):
        raise EngineLost(f"the router is not ready: {tail(folder / 'router.log')}")


def compared(ports: Mapping[str, int], ids: list[int]) -> str:
    """The fault in the answers to a prompt, as tokens and as a chat; empty if they are right."""
    sampling = {"temperature": 0, "max_new_tokens": COUNT, "ignore_eos": True}
    chat = {"model": "m", "messages": [{"role": "user", "content": " ".join(map(str, ids[:20]))}],
            "temperature": 0, "max_tokens": COUNT, "ignore_eos": True}  # fmt: skip
    asked: tuple[tuple[str, Body], ...] = ((GENERATE, {"input_ids": ids, "sampling_params": sampling}), (CHATS, chat))
    for path, body in asked:
        found, wanted = (_told(post(ports[name], path, body)) for name in ("router", "alone"))
        if found != wanted:
            return f"{path} of {len(ids)} tokens: {found}, not {wanted}"
    return ""


def _told(answer: Body) -> object:
    """The tokens of an answer, or the text of a chat."""
    return answer["output_ids"] if "output_ids" in answer else answer["choices"][0]["message"]["content"]
