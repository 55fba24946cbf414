"""SGLang's engines, driven by JSON lines. Runs in SGLang's environment."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import itertools
import json
import os
import queue
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

ANSWER_S = 150.0
# The number of what an engine says once it serves.
READY = 0


class EngineEndedError(Exception):
    """The engine's process has ended; its log says why."""


class Engine:
    """One engine, in a group of processes of its own. `ask` begins something, `answer` waits for what came of it."""

    def __init__(self, start: Callable[[int, int], int], log: Path) -> None:
        """`start` begins a process that reads what is asked and writes what is answered, and returns its number."""
        self.log, self._numbers = log, itertools.count(1)
        self._answers = collections.defaultdict[int, queue.Queue[dict[str, Any]]](queue.Queue)
        self._ended = threading.Event()
        inward, outward = os.pipe(), os.pipe()
        self.pid = start(inward[0], outward[1])
        os.close(inward[0])
        os.close(outward[1])
        self._to, self._from = os.fdopen(inward[1], "w"), os.fdopen(outward[0])
        threading.Thread(target=self._read, daemon=True).start()

    def ready(self) -> None:
        """Wait until it serves. Raises EngineEndedError, TimeoutError."""
        self.answer(READY)

    def ask(self, **asked: Any) -> int:
        """The number of what is asked: a prompt (`ids`), an `abort` of a number, or `pools`."""
        number = next(self._numbers)
        with contextlib.suppress(BrokenPipeError):
            self._to.write(json.dumps({**asked, "number": number}) + "\n")
            self._to.flush()
        return number

    def answer(self, number: int, seconds: float = ANSWER_S) -> dict[str, Any]:
        """Wait for the answer to a request by its number. Raises EngineEndedError, TimeoutError."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(queue.Empty):
                return self._answers[number].get(timeout=min(0.2, seconds))
            if self._ended.is_set() and self._answers[number].empty():
                raise EngineEndedError(f"the engine ended: {self.log}")
        raise TimeoutError(f"no answer in {seconds:g} s: {self.log}")

    def signal(self, number: int) -> None:
        """Send a signal to all of its processes."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def stop(self) -> None:
        """Kill it; the kernel is waited for, so that its ports are free."""
        self.signal(signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)

    def _read(self) -> None:
        for line in self._from:
            with contextlib.suppress(ValueError):
                said = json.loads(line)
                self._answers[said.pop("number")].put(said)
        self._ended.set()


def serve(options: Mapping[str, Any], requests: TextIO, answers: TextIO) -> None:
    """Be an engine, until nobody can ask any more."""
    import sglang

    engine = sglang.Engine(**options)
    engine.loop.run_until_complete(_converse(engine, requests, answers))


async def _converse(engine: Any, requests: TextIO, answers: TextIO) -> None:
    """Carry out what is asked, all of it at once, until nobody can ask any more."""

    def say(number: int, **said: Any) -> None:
        print(json.dumps({**said, "number": number}), file=answers)

    async def carry_out(number: int, asked: dict[str, Any]) -> None:
        try:
            say(number, **await _done(engine, number, asked))
        except Exception as error:
            traceback.print_exc()
            say(number, error=str(error)[:500])

    say(READY)
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    while line := await loop.run_in_executor(None, requests.readline):
        asked = json.loads(line)
        task = loop.create_task(carry_out(asked.pop("number"), asked))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


async def _done(engine: Any, number: int, asked: dict[str, Any]) -> dict[str, Any]:
    """One prompt, or several at once; an abort of one that has a number; or how much of the pools is taken."""
    if "abort" in asked:
        engine.tokenizer_manager.abort_request(f"{asked['abort']}")
        return {}
    if "pools" in asked:
        return _taken(await engine.tokenizer_manager.get_loads())
    rooms = {f"bootstrap_{key}": asked[key] for key in ("host", "port", "room") if key in asked}
    rooms |= {} if isinstance(asked["ids"][0], list) else {"rid": f"{number}"}
    sampling = {"temperature": 0, "max_new_tokens": asked["count"], "ignore_eos": True}
    began, first = time.monotonic(), 0.0
    stream = await engine.async_generate(
        input_ids=asked["ids"], return_logprob=True, sampling_params=sampling, stream=True, **rooms
    )
    made: dict[int, Any] = {}
    async for one in stream:
        first = first or time.monotonic() - began
        made[one.get("index", 0)] = one
    answers = [_answer(made[index]) for index in sorted(made)]
    return {"answers": answers, "first": first, "seconds": time.monotonic() - began}


def _taken(loads: Sequence[Any]) -> dict[str, int]:
    """Tokens that SGLang's pools have given away, and requests that it works on; radix caches count for nothing."""
    queues = [each.disaggregation for each in loads if each.disaggregation is not None]
    counts = (sum(getattr(each, name) for name in each.__struct_fields__ if name.endswith("_reqs")) for each in queues)
    requests = sum(counts, sum(each.num_running_reqs + each.num_waiting_reqs for each in loads))
    return {"tokens": sum(each.num_used_tokens for each in loads), "requests": requests}


def _answer(one: dict[str, Any]) -> dict[str, Any]:
    about = one["meta_info"]
    logprobs = [each[0] for each in about.get("output_token_logprobs") or []]
    reason = about.get("finish_reason") or {}
    error = reason.get("message", "aborted") if reason.get("type") == "abort" else ""
    return {"tokens": one.get("output_ids"), "logprobs": logprobs, "cached": about.get("cached_tokens"), "error": error}
