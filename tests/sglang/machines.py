"""Places for engines. On a CPU they are forks of a process that has imported SGLang; on a GPU, separate programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sglang.engine import serve

Options = Mapping[str, Any]
# Starts an engine with options, variables, a log, and the ends of pipes: what is asked, what is answered. Its process.
Start = Callable[[Options, Mapping[str, str], Path, int, int], int]
COMMON = {
    "skip_tokenizer_init": True,
    "max_total_tokens": 4096,
    "context_length": 1024,
    "disable_radix_cache": True,
    "skip_server_warmup": True,
    "sleep_on_idle": True,
    "log_level": "info",
    "max_running_requests": 16,
}
ON_CPU = {
    **COMMON,
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "torch_native",
    "sampling_backend": "pytorch",
    "disable_cuda_graph": True,
    "disable_overlap_schedule": True,
    "mem_fraction_static": 0.1,
}
# With the overlap scheduler, CUDA graphs, and the attention that SGLang chooses; two engines share a GPU.
ON_GPU = {**COMMON, "device": "cuda", "dtype": "bfloat16", "mem_fraction_static": 0.3}
# How a server is started: what looks for other types of models imports packages for GPUs. Tokens come as text.
SERVE = ("sglang", "serve", "--model-type", "llm")
SERVED = {**ON_CPU, "skip_tokenizer_init": False}
CPU_ENVIRONMENT = {
    "SGLANG_USE_CPU_ENGINE": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "UCX_TLS": "tcp,sm,self,cma",
    "PYTHONWARNINGS": "ignore",
    "TORCHDYNAMO_DISABLE": "1",
}
ANSWERS = "KVPLAN_TEST_ANSWERS"


def flags(options: Options) -> list[str]:
    """Options of an engine as a command line has them."""
    given = {f"--{name.replace('_', '-')}": value for name, value in options.items() if value is not False}
    return [word for name, value in given.items() for word in ((name,) if value is True else (name, str(value)))]


@dataclass(frozen=True, slots=True)
class Machine:
    """How engines are started, and with which options. Logprobs of right answers differ by less than `gap`."""

    options: Options
    start: Start
    gap: float


def forked(options: Options, environment: Mapping[str, str], log: Path, inward: int, outward: int) -> int:
    """Start an engine as a fork of this process."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for number in (1, 2):
            os.dup2(file, number)
        os.environ.update(environment)
        if options.get("disaggregation_transfer_backend") == "nixl":
            from tests.sglang import dram

            dram.install()
        sys.stdout = sys.stderr = os.fdopen(2, "w", buffering=1)
        serve(options, os.fdopen(inward), os.fdopen(outward, "w", buffering=1))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


def executed(options: Options, environment: Mapping[str, str], log: Path, inward: int, outward: int) -> int:
    """Start an engine as a program: CUDA does not survive a fork."""
    with log.open("wb") as file:
        program = [sys.executable, "-m", "tests.sglang.machines", json.dumps(dict(options))]
        return subprocess.Popen(
            program, env={**os.environ, **environment, ANSWERS: str(outward)}, stdin=inward, stdout=file,
            stderr=subprocess.STDOUT, pass_fds=(outward,), start_new_session=True,
        ).pid  # fmt: skip


def imported() -> None:
    """Import all that engines on a CPU would import, and let SGLang fork its schedulers."""
    for name, value in CPU_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    from tests.sglang import interpreter, stubs

    stubs.install()
    import multiprocessing

    import sglang.srt.entrypoints.engine
    import sglang.srt.managers.scheduler
    import sglang.srt.models.registry  # noqa: F401

    if interpreter.wanted():
        interpreter.install()
    set_method = multiprocessing.set_start_method
    multiprocessing.set_start_method = lambda method, force=False: set_method("fork", force=True)  # type: ignore[assignment]


CPU, GPU = Machine(ON_CPU, forked, gap=1e-3), Machine(ON_GPU, executed, gap=0.1)

if __name__ == "__main__":
    serve(json.loads(sys.argv[1]), sys.stdin, os.fdopen(int(os.environ.pop(ANSWERS)), "w", buffering=1))
