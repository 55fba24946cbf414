"""SGLang's engines as forks of one process that has imported it, driven by JSON lines. Runs in SGLang's environment."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "UCX_TLS": "tcp,sm,self,cma",
    "PYTHONWARNINGS": "ignore",
    "TORCHDYNAMO_DISABLE": "1",
}
OPTIONS: dict[str, Any] = {
    "skip_tokenizer_init": True,
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "max_total_tokens": 4096,
    "context_length": 1024,
    "mem_fraction_static": 0.1,
    "disable_radix_cache": True,
    "skip_server_warmup": True,
    "log_level": "info",
    "max_running_requests": 16,
}
ANSWER_S = 150.0


class Engine:
    """One engine. `ask` begins a request, `answer` waits for the next one that ends."""

    def __init__(self, options: dict[str, Any], environment: dict[str, str], log: Path) -> None:
        self.log, self._answers = log, queue.Queue[dict[str, Any]]()
        inward, outward = os.pipe(), os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _child(options, environment, log, inward[0], outward[1])
        os.close(inward[0])
        os.close(outward[1])
        self._to, self._from = os.fdopen(inward[1], "w"), os.fdopen(outward[0])
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, **request: Any) -> None:
        self._to.write(json.dumps(request) + "\n")
        self._to.flush()

    def answer(self, seconds: float = ANSWER_S) -> dict[str, Any]:
        """Raises RuntimeError if the engine ended, TimeoutError."""
        try:
            got = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TimeoutError(f"no answer in {seconds:g} s: {self.log}") from None
        if got.get("ended"):
            raise RuntimeError(f"the engine ended: {self.log}")
        return got

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _read(self) -> None:
        for line in self._from:
            with contextlib.suppress(ValueError):
                self._answers.put(json.loads(line))
        self._answers.put({"ended": True})


def _child(options: dict[str, Any], environment: dict[str, str], log: Path, inward: int, outward: int) -> None:
    try:
        os.setsid()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(file, number)
        os.environ.update(environment)
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1)
        _serve({**OPTIONS, **options}, os.fdopen(inward), os.fdopen(outward, "w", buffering=1))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def _serve(options: dict[str, Any], requests: TextIO, answers: TextIO) -> None:
    import sglang

    engine = sglang.Engine(**options)
    print(json.dumps({"ready": True}), file=answers)
    for line in requests:
        try:
            print(json.dumps(_generate(engine, json.loads(line))), file=answers)
        except Exception as error:
            traceback.print_exc()
            print(json.dumps({"error": str(error)[:500]}), file=answers)


def _generate(engine: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """One prompt, or several at once."""
    rooms = {f"bootstrap_{key}": asked[key] for key in ("host", "port", "room") if key in asked}
    sampling = {"temperature": 0, "max_new_tokens": asked["count"], "ignore_eos": True}
    began = time.monotonic()
    made = engine.generate(input_ids=asked["ids"], return_logprob=True, sampling_params=sampling, **rooms)
    answers = [_answer(one) for one in (made if isinstance(made, list) else [made])]
    return {"answers": answers, "seconds": time.monotonic() - began}


def _answer(one: dict[str, Any]) -> dict[str, Any]:
    about = one["meta_info"]
    logprobs = [each[0] for each in about.get("output_token_logprobs") or []]
    reason = about.get("finish_reason") or {}
    error = reason.get("message", "aborted") if reason.get("type") == "abort" else ""
    return {"tokens": one.get("output_ids"), "logprobs": logprobs, "cached": about.get("cached_tokens"), "error": error}


def imported() -> None:
    """Import all that engines would import, and let SGLang fork its schedulers."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from tests.sglang import stubs

    stubs.install()
    import multiprocessing

    import sglang.srt.entrypoints.engine
    import sglang.srt.managers.scheduler
    import sglang.srt.models.registry  # noqa: F401

    set_method = multiprocessing.set_start_method
    multiprocessing.set_start_method = lambda method, force=False: set_method("fork", force=True)  # type: ignore[assignment]
