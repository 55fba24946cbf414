"""Checks of the connector against a release of vLLM: each ends right or with a traceback, told as a line of JSON.

Runs in vLLM's environment, as `python -m tests.vllm.interface_checks FOLDER [CHECK …]`. Prefill has blocks of 32
tokens and one worker, decode blocks of 64 and two.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import vllm
from tests.vllm.modelless import LAYERS, TOKEN, BlankEngine
from tests.vllm.models import CONFIGS
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1
from vllm.v1.request import RequestStatus

from kvplan.integrations.shared.errors import ConnectorError
from kvplan.runtime.errors import HandleError

PROMPT = [10 + number % 97 for number in range(70)]
PREFILL = {"block_size": 32, "num_gpu_blocks_override": 16}
DECODE = {"block_size": 64, "num_gpu_blocks_override": 16, "tensor_parallel_size": 2}
# The longest that anything here may take: a plan is compiled within the first load.
LONG_S = 60.0


class Bench:
    """Makes engines: `folder` holds the model's config.json. Each takes free ports."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.engines: list[BlankEngine] = []

    def engine(
        self, role: str, policy: str = "fail", hold_s: float = LONG_S, sleeps: bool = False, **more: Any
    ) -> BlankEngine:
        extra = {
            "lease_s": LONG_S,
            "timeout_s": LONG_S,
            "connect": LONG_S,
            "hold_s": hold_s,
        }
        side = PREFILL if role == "kv_producer" else DECODE
        made = BlankEngine(str(self.folder), extra, role, policy, sleeps, **{**side, **more})
        self.engines.append(made)
        return made

    def close(self) -> None:
        while self.engines:
            self.engines.pop().close()


def prefilled(prefill: BlankEngine, name: str = "p", prompt: list[int] = PROMPT) -> dict[str, Any]:
    """The parameters that decode gets of a prompt that was prefilled."""
    prefill.ask(name, prompt, {"do_remote_decode": True}, tokens=1)
    prefill.until(lambda: name in prefill.ended)
    return dict(prefill.ended[name].kv_transfer_params)


def nowhere(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters of a request that is held by nobody."""
    return {**params, "remote_request_id": "never-held"}


def same(prefill: BlankEngine, blocks: list[int], decode: BlankEngine, request: Any, count: int) -> bool:
    """Whether decode's blocks of a request hold what prefill's do."""
    (here,) = decode.scheduler.kv_cache_manager.get_block_ids(request.request_id)
    pairs = zip(prefill.tokens_of(blocks, count), decode.tokens_of(here, count), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def has_token(request: Any) -> bool:
    return bool(request.output_token_ids)


def refused(kind: type[Exception], act: Callable[[], object]) -> str:
    """The code of the error that `act` raises, empty where it does not."""
    try:
        act()
    except kind as error:
        return str(error.code)  # type: ignore[attr-defined]
    return ""


def check_load(bench: Bench) -> None:
    """A request waits for its blocks, has prefill's bytes when it runs, and both pools are whole afterwards."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer")
    params = prefilled(prefill)
    assert prefill.free_blocks() == prefill.free - 3, "prefill keeps three blocks"
    prefill.until(lambda: prefill.metric("held_requests") == 1)
    assert "p" in prefill.scheduler.requests, "prefill keeps the request, which has ended"
    request = decode.ask("d", PROMPT, params)
    decode.step()
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    decode.until(partial(has_token, request), prefill)
    assert same(prefill, params["remote_block_ids"][0], decode, request, len(PROMPT) - 1)
    decode.until(lambda: "d" in decode.ended, prefill)
    assert list(request.output_token_ids) == [TOKEN] * 4
    prefill.until(lambda: not prefill.scheduler.requests, decode)
    assert prefill.free_blocks() == prefill.free
    assert decode.free_blocks() == decode.free
    assert prefill.metric("held_requests") == 0
    assert (decode.metric("load_time_seconds_count"), decode.metric("quarantined_loads")) == (2, 0)


def check_whole_hit(bench: Bench) -> None:
    """Decode loads nothing that it already has, and prefill's blocks are free at once."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer")
    prompt = PROMPT[:65]
    for name in ("first", "again"):
        params = prefilled(prefill, name, prompt)
        request = decode.ask(name, prompt, params)
        decode.step()
        loads = request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
        assert loads == (name == "first")
        decode.until(partial(decode.ended.__contains__, name), prefill)
        prefill.until(lambda: not prefill.scheduler.requests, decode)
    assert prefill.free_blocks() == prefill.free
    assert decode.free_blocks() == decode.free


def check_abort_while_loading(bench: Bench) -> None:
    """Blocks of a load that was aborted are free once it has ended; prefill's when nobody wants them."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer")
    request = decode.ask("d", PROMPT, prefilled(prefill))
    decode.step()
    assert request.status is RequestStatus.WAITING_FOR_REMOTE_KVS
    decode.core.abort_requests(["d"])
    decode.until(lambda: not decode.scheduler.requests, prefill)
    assert decode.free_blocks() == decode.free


def check_abort_before_it_is_scheduled(bench: Bench) -> None:
    """Prefill's blocks are free at once."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer")
    decode.ask("d", PROMPT, prefilled(prefill))
    decode.core.abort_requests(["d"])
    prefill.until(lambda: not prefill.scheduler.requests, decode)
    assert (prefill.free_blocks(), decode.free_blocks()) == (prefill.free, decode.free)


def check_abort_on_prefill(bench: Bench) -> None:
    """A held request stays held: its client has the parameters."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer")
    params = prefilled(prefill)
    prefill.core.abort_requests(["p"])
    request = decode.ask("d", PROMPT, params)
    decode.until(lambda: "d" in decode.ended, prefill)
    assert list(request.output_token_ids) == [TOKEN] * 4


def check_failure_recompute(bench: Bench) -> None:
    """A load that fails on both workers has the prompt computed here."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer", "recompute", hold_s=1.0)
    request = decode.ask("d", PROMPT, nowhere(prefilled(prefill)))
    decode.until(lambda: "d" in decode.ended, prefill)
    assert list(request.output_token_ids) == [TOKEN] * 4
    assert decode.free_blocks() == decode.free


def check_failure_fail(bench: Bench) -> None:
    """A load that fails ends its request with an error, and leaves the next one alone."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer", hold_s=1.0)
    params = prefilled(prefill)
    lost, well = decode.ask("lost", PROMPT, nowhere(params)), decode.ask("well", PROMPT, params)
    decode.until(lambda: {"lost", "well"} <= set(decode.ended), prefill)
    assert (str(lost.get_finished_reason()), list(lost.output_token_ids)) == ("error", [])
    assert list(well.output_token_ids) == [TOKEN] * 4
    assert decode.free_blocks() == decode.free


def check_preemption(bench: Bench) -> None:
    """Requests that were loaded and then preempted are computed again, and end."""
    prefill, decode = bench.engine("kv_producer"), bench.engine("kv_consumer", num_gpu_blocks_override=6)
    prompts = {name: [*PROMPT[1:], number] for number, name in enumerate(("one", "two"))}
    params = {name: prefilled(prefill, name, prompt) for name, prompt in prompts.items()}
    requests = [decode.ask(name, prompts[name], params[name], tokens=120) for name in prompts]
    decode.until(lambda: set(prompts) <= set(decode.ended), prefill)
    assert [len(request.output_token_ids) for request in requests] == [120, 120]
    assert sum(request.num_preemptions for request in requests) > 0
    prefill.until(lambda: not prefill.scheduler.requests, decode)
    assert (prefill.free_blocks(), decode.free_blocks()) == (prefill.free, decode.free)


def check_one_that_does_not_decode(bench: Bench) -> None:
    """Parameters that are sent to the wrong engine are computed there."""
    prefill = bench.engine("kv_producer")
    params = prefilled(prefill)
    request = prefill.ask("d", PROMPT, params)
    prefill.until(lambda: "d" in prefill.ended)
    assert list(request.output_token_ids) == [TOKEN] * 4


def check_sleep(bench: Bench) -> None:
    """Engines that sleep are refused, or told so, and load again when they are awake."""
    if not hasattr(KVConnectorBase_V1, "restore_kv_caches"):
        assert refused(ConnectorError, lambda: bench.engine("kv_producer", sleeps=True)) == "I007"
        return
    prefill, decode = bench.engine("kv_producer", sleeps=True), bench.engine("kv_consumer", sleeps=True)
    for name in ("before", "after"):
        params = prefilled(prefill, name)
        request = decode.ask(name, PROMPT, params)
        decode.until(partial(has_token, request), prefill)
        assert same(prefill, params["remote_block_ids"][0], decode, request, len(PROMPT) - 1)
        decode.until(partial(decode.ended.__contains__, name), prefill)
        prefill.until(lambda: not prefill.scheduler.requests, decode)
        for engine in (prefill, decode):
            engine.core.sleep(1)
            engine.core.wake_up()
            for worker in engine.workers:
                worker.fill()


def check_sleep_while_it_is_held(bench: Bench) -> None:
    """Memory that others may read is not given back: the engine stays awake, and what it holds is loaded."""
    if not hasattr(KVConnectorBase_V1, "restore_kv_caches"):
        return
    prefill, decode = bench.engine("kv_producer", sleeps=True), bench.engine("kv_consumer", sleeps=True)
    params = prefilled(prefill)
    prefill.step()
    # The core itself waits until all is fetched, or refuses: this is what stands behind it.
    assert refused(HandleError, lambda: prefill.core.model_executor.sleep(1)) == "R033"
    request = decode.ask("d", PROMPT, params)
    decode.until(partial(has_token, request), prefill)
    assert same(prefill, params["remote_block_ids"][0], decode, request, len(PROMPT) - 1)


CHECKS: dict[str, Callable[[Bench], None]] = {
    name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")
}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints
    folder = Path(sys.argv[1])
    config = {**CONFIGS["qwen3"], "num_hidden_layers": LAYERS}
    (folder / "config.json").write_text(json.dumps(config))
    answers.write(json.dumps({"version": vllm.__version__}) + "\n")
    bench = Bench(folder)
    for name in sys.argv[2:] or CHECKS:
        fault = ""
        try:
            CHECKS[name](bench)
        except BaseException:
            fault = traceback.format_exc()
        finally:
            bench.close()
        answers.write(json.dumps({"check": name, "fault": fault}) + "\n")
        answers.flush()
    answers.flush()


if __name__ == "__main__":
    main()
