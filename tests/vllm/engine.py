"""One vLLM engine, driven by lines of JSON on a socket: it steps while its scheduler has anything to do.

Runs in vLLM's environment, in a fork of the launcher. Words to it are {"re": N, "op": …}, and each is answered by
{"re": N, …}; a request is answered when it ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from queue import Empty, Queue
from typing import Any

from tests.vllm import pages, watch
from tests.vllm.stopwatch import Stopwatch

DEFAULTS = {
    "skip_tokenizer_init": True,
    "enforce_eager": True,
    "max_model_len": 1024,
    "disable_log_stats": True,
}


def serve(config: Mapping[str, Any], words: socket.socket) -> None:
    """Start the engine, say that it is ready, and obey until the socket closes or `stop` is said."""
    stream = words.makefile("rw")
    try:
        engine = Engine(config)
    except BaseException as error:
        tell(stream, {"failed": f"{type(error).__name__}: {error}"})
        raise
    tell(stream, {"ready": True, "pid": os.getpid()})
    inbox: Queue[Mapping[str, Any]] = Queue()
    threading.Thread(target=listen, args=(stream, inbox), daemon=True).start()
    engine.obey(inbox, stream)


def tell(stream: Any, word: Mapping[str, Any]) -> None:
    stream.write(json.dumps(word) + "\n")
    stream.flush()


def listen(stream: Any, inbox: Queue[Mapping[str, Any]]) -> None:
    for line in stream:
        inbox.put(json.loads(line))
    inbox.put({"op": "stop"})


@dataclass
class Running:
    """A request: who asked, since when, at which of its steps it is to be aborted."""

    re: int
    began: float
    abort_after: int | None = None
    abort_at: str = ""  # or at which stage, by name
    stands: bool = False  # the engine is to stand still once it has answered
    read: str = ""  # when its pages are: "loaded", before its first step, or "held", when it has ended
    steps: int = 0
    first: float = 0.0
    tokens: list[int] = field(default_factory=list)


class Engine:
    """vLLM's engine with its core in this process, so that its block pool and its pages can be looked at."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        from vllm import LLM
        from vllm.config import KVTransferConfig

        options = {**DEFAULTS, **config["llm"]}
        workers = options.get("tensor_parallel_size", 1) * options.get("pipeline_parallel_size", 1)
        if workers > 1 and config["kv"]["kv_buffer_device"] == "cpu":  # CUDA does not survive a fork.
            fork_workers()
        self.llm = LLM(kv_transfer_config=KVTransferConfig(**config["kv"]), **options).llm_engine
        self.core = self.llm.engine_core.engine_core
        self.running: dict[str, Running] = {}
        self.preempted = 0
        self.stands = False
        self.stopwatch = Stopwatch()
        self.contents: dict[str, Mapping[str, Any]] = {}
        self._look_at_steps()

    def _look_at_steps(self) -> None:
        """Count preemptions; read pages when a request is scheduled first, and when it finishes with its blocks."""
        scheduler = self.core.scheduler
        schedule, finished = scheduler.schedule, scheduler._connector_finished

        def scheduled(*args: Any, **kwargs: Any) -> Any:
            output = schedule(*args, **kwargs)
            self.preempted += len(output.preempted_req_ids or ())
            for request in output.scheduled_new_reqs:
                if request.num_computed_tokens:
                    self._read("loaded", request.req_id, request.block_ids, request.num_computed_tokens)
            return output

        def at_end(request: Any) -> Any:
            blocks = scheduler.kv_cache_manager.get_block_ids(request.request_id)
            self._read("held", request.request_id, blocks, request.num_computed_tokens)
            return finished(request)

        scheduler.schedule, scheduler._connector_finished = scheduled, at_end

    def _read(self, when: str, request: str, blocks: Any, count: int) -> None:
        """Keep what the pages of all workers hold of a request that is to be read then."""
        name = name_of(request)
        if name in self.running and self.running[name].read == when:
            ids = [list(group) for group in blocks]
            read = self.core.model_executor.collective_rpc(pages.of_worker, args=(ids, count, int(when == "held")))
            self.contents[name] = pages.joined(read)

    def obey(self, inbox: Queue[Mapping[str, Any]], stream: Any) -> None:
        """The engine's loop: words first, then a step."""
        while True:
            try:
                word = inbox.get(block=not self.busy())
            except Empty:
                word = None
            if word is None:
                self.step(stream)
            elif word["op"] == "stop":
                break
            else:
                getattr(self, f"do_{word['op']}")(word, stream)
        self.llm.engine_core.shutdown()
        tell(stream, {"stopped": True})

    def busy(self) -> bool:
        if self.stands:
            return False
        return self.llm.has_unfinished_requests() or self.core.scheduler.has_requests()

    def do_generate(self, word: Mapping[str, Any], stream: Any) -> None:
        from vllm import SamplingParams

        extra = {"kv_transfer_params": word["kv"]} if word.get("kv") else None
        sampling = SamplingParams(
            temperature=0, max_tokens=word["tokens"], ignore_eos=True, detokenize=False, logprobs=1, extra_args=extra
        )
        prompt = {"prompt_token_ids": word["prompt"], "cache_salt": word["salt"]}
        began = time.perf_counter()
        self.running[word["id"]] = Running(
            word["re"],
            began,
            word.get("abort_after"),
            word.get("abort_at", ""),
            word.get("stands", False),
            word.get("read", ""),
        )
        self.llm.add_request(word["id"], prompt, sampling)
        self.abort_due(stream)

    def do_forget(self, word: Mapping[str, Any], stream: Any) -> None:
        """Find no prefix in the pool any more; what other connectors keep stays."""
        tell(stream, {"re": word["re"], "forgot": self.llm.reset_prefix_cache()})

    def do_go(self, word: Mapping[str, Any], stream: Any) -> None:
        self.stands = False
        tell(stream, {"re": word["re"]})

    def do_abort(self, word: Mapping[str, Any], stream: Any) -> None:
        """Abort like a client that leaves, whether or not the request has ended."""
        self.llm.abort_request([word["id"]])
        tell(stream, {"re": word["re"]})

    def do_count(self, word: Mapping[str, Any], stream: Any) -> None:
        free = self.core.scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        spent = time.process_time()
        tell(stream, {"re": word["re"], "free": free, "preempted": self.preempted, "cpu": spent, "busy": self.busy()})

    def do_watch(self, word: Mapping[str, Any], stream: Any) -> None:
        """From now on `steps` tells what the connector takes."""
        self.stopwatch = Stopwatch()
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        for half in (self.core.scheduler.connector, get_kv_transfer_group()):
            self.stopwatch.put_on(half)
        tell(stream, {"re": word["re"]})

    def do_steps(self, word: Mapping[str, Any], stream: Any) -> None:
        tell(stream, {"re": word["re"], "connector_s": self.stopwatch.seconds})

    def do_contents(self, word: Mapping[str, Any], stream: Any) -> None:
        tell(stream, {"re": word["re"], "contents": self.contents.pop(word["id"], None)})

    def abort_due(self, stream: Any) -> None:
        """Abort what has had as many steps as it was to have, in answer to its request."""
        for name, request in list(self.running.items()):
            if request.abort_after is None or request.steps < request.abort_after:
                continue
            del self.running[name]
            self.llm.abort_request([name])
            tell(stream, {"re": request.re, "tokens": request.tokens, "reason": "aborted", "kv": None})

    def abort_at_stage(self, stream: Any) -> None:
        """Abort what was to be aborted at a stage that it has reached; until then no step is done."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        for name, request in list(self.running.items()):
            running = request.abort_at == "RUNNING"
            if not request.abort_at or (running and len(request.tokens) < 2):
                continue
            transfer = None if running else watch.transfer_of(get_kv_transfer_group(), name)
            reached = running or (transfer is not None and watch.reached(transfer, request.abort_at))
            del self.running[name]
            self.llm.abort_request([name])
            tell(stream, {"re": request.re, "tokens": request.tokens, "reason": "aborted", "reached": reached})

    def step(self, stream: Any) -> None:
        outputs = self.llm.step()
        self.stopwatch.step()
        for request in self.running.values():
            request.steps += 1
        for output in outputs:
            self.note(output, stream)
        self.abort_due(stream)
        self.abort_at_stage(stream)

    def note(self, output: Any, stream: Any) -> None:
        """Note a request's first token, and answer when it has ended."""
        request = self.running.get(output.request_id)
        if request is None:
            return
        completion = output.outputs[0]
        request.tokens = list(completion.token_ids)
        if request.tokens and not request.first:
            request.first = time.perf_counter() - request.began
        if not output.finished:
            return
        del self.running[output.request_id]
        self.stands = request.stands
        logprobs = [round(next(iter(step.values())).logprob, 5) for step in completion.logprobs or ()]
        answer = {"tokens": request.tokens, "logprobs": logprobs, "reason": str(completion.finish_reason)}
        ending = {"kv": output.kv_transfer_params, "cached": output.num_cached_tokens, "first_s": request.first}
        tell(stream, {"re": request.re, **answer, **ending})


def fork_workers() -> None:
    """Let an engine of several workers fork them, too; vLLM would spawn them, and each would import it again."""
    from vllm.v1.executor import multiproc_executor

    multiproc_executor.get_mp_context = lambda: multiprocessing.get_context("fork")


def name_of(request: str) -> str:
    """A request's name: vLLM appends eight digits to it."""
    return request.rsplit("-", 1)[0]


if __name__ == "__main__":
    sys.exit("an engine is forked by tests.vllm.launcher")
