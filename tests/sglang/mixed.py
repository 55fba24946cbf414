"""A vLLM and an SGLang server behind `kvplan route`: tokens and logprobs of the pair against those of vLLM alone."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from tests.paths import ROOT
from tests.sglang import environment
from tests.sglang.cases import THREADS
from tests.sglang.mixed_cases import VLLM, MixedCase, drawn
from tests.vllm.models import word
from tests.vllm.pair import PORTS
from tests.vllm.process import EngineLost, Launcher, tail, wait_until
from tests.vllm.requests import MEETINGS
from tests.vllm.serve import CHATS, COMPLETIONS, read
from tests.vllm.servers import Server, describe
from tests.vllm.web import Body, HttpError, answers, post, stream

START_S = 60.0
# How much a logprob may be off: what float32 loses where other kernels add in another order.
GAP = 1e-5
# Convolution states in the model's own type, as vLLM has them.
HYBRID = {"SGLANG_MAMBA_CONV_DTYPE": "float32"}
RIGHT, REFUSED, WRONG = "right", "refused", "wrong"


@dataclass(frozen=True, slots=True)
class MixedOutcome:
    """What came of a case: a word, why if it is not right, and by how much the worst logprob is off."""

    case: str
    word: str
    why: str = ""
    gap: float | None = None

    @property
    def within(self) -> str:
        """The worst logprob's distance, rounded up to one digit; empty if nothing was compared."""
        if self.gap is None:
            return ""
        digits = 10.0 ** math.floor(math.log10(self.gap)) if self.gap else 1.0
        return f"{math.ceil(self.gap / digits) * digits:.0e}"


class MixedPlayer:
    """Plays cases one by one. Each package is imported once, SGLang once more for layers that need Triton."""

    def __init__(self, vllm: Path, sglang: Path, folder: Path) -> None:
        self._stack, self._python = ExitStack(), sglang
        self._sglang: dict[bool, Launcher] = {}
        self.folder = folder
        self.vllm = self._stack.enter_context(Launcher(vllm, folder))
        describe(self.vllm)

    def __enter__(self) -> MixedPlayer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def sglang(self, triton: bool) -> Launcher:
        if triton not in self._sglang:
            told = {"TRITON_INTERPRET": "1", **HYBRID} if triton else {}
            more = [environment.triton()] if triton else []
            made = Launcher(self._python, self.folder, told, "tests.sglang.serve", more)
            self._sglang[triton] = self._stack.enter_context(made)
        return self._sglang[triton]

    def model(self, name: str) -> Path:
        """A model's folder. One called `…_other` has the same configuration, and other weights. Raises EngineLost."""
        place, made = self.folder / "models" / name, self.vllm.model(name.removesuffix("_other"))
        if not place.exists():
            shutil.copytree(made, place)
            change(place / "model.safetensors")
        return place

    def play(self, case: MixedCase) -> MixedOutcome:
        try:
            with MixedPair(self, case) as pair:
                return pair.played()
        except (EngineLost, HttpError, OSError) as error:
            return MixedOutcome(case.name, WRONG, f"{type(error).__name__}: {error}")


class MixedPair:
    """The servers of a case, and the router in front of them."""

    def __init__(self, player: MixedPlayer, case: MixedCase) -> None:
        self.case, self._player, self._stack = case, player, ExitStack()
        self.vllm_port, self.sglang_port, self.port = next(PORTS), next(PORTS), next(PORTS)

    def __enter__(self) -> MixedPair:
        try:
            servers = [self._vllm(), self._sglang()]
            for server in servers:
                server.wait_ready("/health")
            self._router()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def played(self) -> MixedOutcome:
        """All prompts through the router, and alone."""
        if not self.case.refused:
            self._meet()
        try:
            gaps = list(self._gaps())
        except HttpError as error:
            if self.case.refused and any(self.case.refused in log for log in self._logs()):
                return MixedOutcome(self.case.name, REFUSED)
            return MixedOutcome(self.case.name, WRONG, str(error))
        if self.case.refused:
            return MixedOutcome(self.case.name, WRONG, "nothing was refused")
        wrong = [why for why, _ in gaps if why]
        return MixedOutcome(self.case.name, WRONG if wrong else RIGHT, "; ".join(wrong), max(gap for _, gap in gaps))

    def _meet(self) -> None:
        """First requests, which do not count: both engines may compile the plan for longer than meeting may take."""
        for _ in range(MEETINGS):
            with suppress(HttpError):
                post(self.port, COMPLETIONS, self._completion(drawn((20,), seed=2)[0]))
                break

    def _gaps(self) -> Iterator[tuple[str, float]]:
        """What is wrong with each answer, empty if nothing is, and by how much its logprobs are off."""
        for number, prompt in enumerate(drawn(self.case.lengths)):
            body = self._completion(prompt)
            yield self._compared(answer_of(post(self.port, COMPLETIONS, body)["choices"]), COMPLETIONS, body)
            if number < self.case.chats:
                events = list(stream(self.port, COMPLETIONS, {**body, "stream": True}))
                streamed = answer_of([choice for event in events for choice in event["choices"]])
                yield self._compared(streamed, COMPLETIONS, body)
                chat = self._chat(prompt)
                yield self._compared(answer_of(post(self.port, CHATS, chat)["choices"]), CHATS, chat)

    def _compared(self, found: Mapping[str, Any], path: str, body: Body) -> tuple[str, float]:
        """An answer beside that of vLLM alone."""
        return compared(found, answer_of(post(self.vllm_port, path, body)["choices"]), self.case.count)

    def _common(self) -> Body:
        return {"model": self._model(), "temperature": 0, "ignore_eos": True, "return_token_ids": True}

    def _completion(self, prompt: Sequence[int]) -> Body:
        return {**self._common(), "prompt": list(prompt), "max_tokens": self.case.count, "logprobs": 1}

    def _chat(self, prompt: Sequence[int]) -> Body:
        said = [{"role": "user", "content": " ".join(map(word, prompt))}]
        return {**self._common(), "messages": said, "max_tokens": self.case.count, "logprobs": True, "top_logprobs": 1}

    def _model(self, decodes: bool = False) -> str:
        case = self.case
        return str(self._player.model(case.decode_model if decodes and case.decode_model else case.model))

    def _vllm(self) -> Server:
        case = self.case
        connector = {**case.config, "port": self.vllm_port + 10}
        transfer = {"kv_connector": "KvplanConnector", "kv_role": "kv_both", "kv_connector_extra_config": connector}
        flags = {
            "--port": self.vllm_port, "--block-size": case.block, "--dtype": "float32", "--max-model-len": 1024,
            "--num-gpu-blocks-override": 256, "--kv-transfer-config": json.dumps(transfer),
        }  # fmt: skip
        words = [*case.vllm, *(str(part) for flag in flags.items() for part in flag)]
        model = self._model(decodes=case.prefill != VLLM)
        command = ["vllm", "serve", model, "--served-model-name", self._model(), "--enforce-eager", *words]
        return self._server(self._player.vllm, "vllm", command, self.vllm_port)

    def _sglang(self) -> Server:
        case, decodes = self.case, self.case.prefill == VLLM
        own = {"disaggregation_decode_retraction_backup": "cpu_tensor"} if decodes else {}
        options = {
            "model_path": self._model(decodes), "served_model_name": self._model(), "port": self.sglang_port,
            "page_size": case.page, "disaggregation_mode": "decode" if decodes else "prefill",
            "disaggregation_transfer_backend": "kvplan", "disaggregation_bootstrap_port": self.sglang_port + 10, **own,
            **case.sglang,
        }  # fmt: skip
        threads = THREADS if "tp_size" in case.sglang else {}
        said = {"options": options, "environment": {"KVPLAN_CONFIG": json.dumps(dict(case.config)), **threads}}
        return self._server(self._player.sglang(case.triton), "sglang", ["sglang", json.dumps(said)], self.sglang_port)

    def _server(self, launcher: Launcher, name: str, words: Sequence[str], port: int) -> Server:
        (self._player.folder / f"{name}.log").unlink(missing_ok=True)
        server = Server(launcher, name, words, port)
        self._stack.callback(server.close)
        return server

    def _router(self) -> None:
        engines = self.vllm_port, self.sglang_port
        first, second = engines if self.case.prefill == VLLM else engines[::-1]
        urls = ["--prefill", f"http://127.0.0.1:{first}", "--decode", f"http://127.0.0.1:{second}"]
        log = self._stack.enter_context((self._player.folder / "router.log").open("w"))
        process = subprocess.Popen(
            [sys.executable, "-m", "kvplan.cli", "route", *urls, "--port", str(self.port), "--silence", "60"],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}, stdout=log, stderr=log,
        )  # fmt: skip
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        if not wait_until(lambda: answers(self.port, "/health"), START_S):
            raise EngineLost(f"the router is not healthy: {tail(self._player.folder / 'router.log')}")

    def _logs(self) -> list[str]:
        return [(self._player.folder / f"{name}.log").read_text(errors="replace") for name in ("vllm", "sglang")]


def change(weights: Path) -> None:
    """Change the last bit of every weight, of two bytes each."""
    data = np.fromfile(weights, np.uint8)
    begin = 8 + int.from_bytes(data[:8].tobytes(), "little")
    data[begin::2] ^= 1
    data.tofile(weights)


def answer_of(choices: Sequence[Body]) -> Mapping[str, Any]:
    """The text of an answer without blanks, which has three letters for each token, and the logprobs."""
    texts = [part for choice in choices for part in (choice.get("text"), (choice.get("message") or {}).get("content"))]
    return {"text": "".join("".join(text for text in texts if text).split()), "logprobs": read(choices)["logprobs"]}


def compared(found: Mapping[str, Any], wanted: Mapping[str, Any], count: int) -> tuple[str, float]:
    """What is wrong with an answer, empty if its tokens are right, and by how much the worst of its logprobs is off."""
    if found["text"] != wanted["text"] or len(wanted["logprobs"]) != count:
        return f"{found['text'][:12]}… instead of {wanted['text'][:12]}…", 0.0
    if not any(wanted["logprobs"]):
        return "the model is certain of every token, whatever it read", 0.0
    pairs = zip(found["logprobs"], wanted["logprobs"], strict=True)
    gap = max(abs(one - other) for one, other in pairs)
    return (f"a logprob is off by {gap:.1e}" if gap > GAP else ""), gap
