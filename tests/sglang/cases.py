"""Cases of real SGLang engines, as data: two engines, and the prompts that go through both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

LENGTHS = (200, 37, 128, 300)
MANY = (1, 16, 17, 37, 63, 64, 65, 128, 200, 300, 400, 500)
RADIX = {"disable_radix_cache": False}
# A decode engine's own switch.
DECODE_RADIX = {"disaggregation_decode_enable_radix_cache": True}
THREADS = {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}


class Fault(Enum):
    """A fault of running engines."""

    PREFILL_KILLED = "prefill is killed before it computes, and restarted"
    PREFILL_KILLED_LATER = "prefill is killed at six moments, and restarted"
    PREFILL_FROZEN = "prefill is frozen, and goes on in time"
    PREFILL_FROZEN_LONG = "prefill is frozen for longer than a request may take"
    PREFILL_FROZEN_LATER = "prefill is frozen at five moments, for longer than a request may take"
    PREFILL_RESTARTED = "prefill is restarted between requests"
    DECODE_KILLED = "decode is killed before it asks, and restarted"
    DECODE_KILLED_LATER = "decode is killed at six moments, and restarted"
    DECODE_FROZEN = "decode is frozen, and goes on in time"
    DECODE_FROZEN_LONG = "decode is frozen for longer than the lease"
    DECODE_RESTARTED = "decode is restarted between requests"
    DECODE_ABORTS = "decode aborts at six moments"
    PREFILL_ABORTS = "prefill aborts at six moments"
    BOTH_ABORT = "both abort at six moments"
    ABORTED_ALONE = "an engine aborts what the other was not asked for"
    DECODE_NEVER_ASKED = "decode is never asked"
    PREFILL_NEVER_ASKED = "prefill is never asked"
    SAME_ROOM = "two prompts in one room"


@dataclass(frozen=True, slots=True)
class Case:
    """Two engines with these options, prompts of these lengths, sent `times` times, one by one or `together`.

    With `refused` every request has to fail, with these words in its error. With `stopped` an engine does not start,
    and its log has these words. Decode has to log the words of `logged`. With `fault` the engines suffer it, and
    the prompts are those of the fault.
    `config` is the connector's, of both engines; `@` in it is the folder of the run. With `layout` the model's layout
    is written there first, with these numbers changed, and plans are `compiled` for these pairs of page sizes. Each
    answer has `count` tokens. With `triton` layers run in Triton's interpreter, which takes seconds for each token.
    Both engines share the `gpus` that they want. Without `lengths` engines only start, with weights that are never
    used: their pools are compared with the derived layout.
    """

    name: str
    prefill: Mapping[str, Any]
    decode: Mapping[str, Any]
    model: str = "qwen3"
    decode_model: str = ""
    lengths: tuple[int, ...] = LENGTHS
    count: int = 16
    triton: bool = False
    gpus: int = 1
    times: int = 1
    together: bool = False
    refused: str = ""
    stopped: str = ""
    logged: str = ""
    layout: Mapping[str, int] | None = None
    compiled: tuple[tuple[str, str], ...] = ()
    fault: Fault | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    prefill_environment: Mapping[str, str] = field(default_factory=dict)
    decode_environment: Mapping[str, str] = field(default_factory=dict)


def pages(first: int, second: int, **more: Any) -> Case:
    """A pair of page sizes."""
    return Case(f"pages {first} → {second}", {"page_size": first}, {"page_size": second}, **more)


MODES = ("pull", "push")
SMALL: Mapping[str, Any] = {"page_size": 16}
LARGE: Mapping[str, Any] = {"page_size": 64}
# Plans that go by way of a stage where that costs less.
STAGED = {"plan_options": {"strategy": "auto"}}
FILES = {"layout": "@/layout.yaml", "plans": "@/plans"}
# Models whose forward does not run on a CPU: their engines start with weights that nobody made.
UNUSED = {"load_format": "dummy"}
POOLS = {
    "MLA": "deepseek_yarn",
    "Gated delta net and attention": "qwen3_next",
    "Mamba-2, attention and MLP layers": "nemotron_h",
}
# SGLang gives the layers with windows of such a model a pool of their own.
ONE_POOL = {
    "json_model_override_args": '{"is_hybrid_swa": true, "hybrid_layer_pattern": [1, 0, 1, 0]}',
    "disable_hybrid_swa_memory": True,
}
# A decode engine that begins more requests than its pages last for.
TIGHT = {"max_total_tokens": 1024, "num_reserved_decode_tokens": 1}
# Times in which faults show, and an engine that was lost is looked for again.
SHORT = {"timeout_s": 8, "lease_s": 5, "connect": 6}


# The same for SGLang's own backend, which needs equal pages.
OWN_SHORT = {f"SGLANG_DISAGGREGATION_{name}": number for name, number in (
    ("BOOTSTRAP_TIMEOUT", "8"), ("WAITING_TIMEOUT", "8"), ("HEARTBEAT_INTERVAL", "1"),
    ("DEFERRED_DECODE_KV_RELEASE_TIMEOUT", "8"))}  # fmt: skip


def of_own(case: Case) -> Case:
    """A case of a fault as SGLang's own backend can play it."""
    decode = {**case.decode, **SMALL}
    alike = replace(case, decode=decode, prefill_environment=OWN_SHORT, decode_environment=OWN_SHORT)
    return alike if case.fault else case


def faults(mode: str, every: Iterable[Fault]) -> Iterator[Case]:
    """Cases of faults on one pair. Prompts are computed in chunks, so that a part of a request moves early."""
    for fault in every:
        yield Case(f"{mode}: {fault.value}", {"page_size": 16, "chunked_prefill_size": 64}, {"page_size": 64},
                   fault=fault, config={**SHORT, "mode": mode})  # fmt: skip


CASES = (
    pages(16, 64),
    *(pages(first, second) for first in (1, 16, 64) for second in (1, 16, 64) if (first, second) != (16, 64)),
    Case("push, 16 → 64", {"page_size": 16}, {"page_size": 64}, config={"mode": "push"}),
    Case("16 → 64, 12 at once, prompts of 1 to 500 tokens, chunks of 256",
         {"page_size": 16, "chunked_prefill_size": 256}, {"page_size": 64}, lengths=MANY, together=True),
    Case("16 → 64, chunks of 64, radix hits on both sides, twice",
         {"page_size": 16, "chunked_prefill_size": 64, **RADIX}, {"page_size": 64, **DECODE_RADIX}, times=2),
    Case("tp 1 → 2, pages of 16", {"page_size": 16}, {"page_size": 16, "tp_size": 2}, decode_environment=THREADS),
    Case("tp 1 → 2, 16 → 64", {"page_size": 16}, {"page_size": 64, "tp_size": 2}, decode_environment=THREADS),
    Case("tp 2 → 1, 16 → 64", {"page_size": 16, "tp_size": 2}, {"page_size": 64}, prefill_environment=THREADS),
    Case("by way of decode's stage, tp 1 → 2, 16 → 64", SMALL, {**LARGE, "tp_size": 2}, decode_environment=THREADS,
         config=STAGED),
    Case("by way of prefill's stage, push, tp 2 → 1, 16 → 64", {**SMALL, "tp_size": 2}, LARGE,
         prefill_environment=THREADS, config={**STAGED, "mode": "push"}),
    Case("pp 2 → 1, 16 → 64", {**SMALL, "pp_size": 2}, LARGE, prefill_environment=THREADS),
    Case("pp 2 → 1, chunks of 64, 12 at once", {**SMALL, "pp_size": 2, "chunked_prefill_size": 64}, LARGE,
         lengths=MANY, together=True, prefill_environment=THREADS),
    Case("pp 2 that decodes", SMALL, {**LARGE, "pp_size": 2}, decode_environment=THREADS,
         stopped="pipeline parallel workers that decode"),
    Case("dp 2 that decodes", SMALL, {**LARGE, "dp_size": 2}, decode_environment=THREADS,
         stopped="data parallel workers (--dp-size)"),
    Case("data parallel attention that decodes", SMALL, {**LARGE, "tp_size": 2, "attn_dp_size": 2},
         decode_environment=THREADS, stopped="data parallel attention (--attn-dp-size)"),
    Case("windows in one pool, by --disable-hybrid-swa-memory", {**SMALL, **ONE_POOL}, {**LARGE, **ONE_POOL}),
    Case("decode runs out of pages and retracts, 8 at once", SMALL, {**LARGE, **TIGHT},
         lengths=(70, 80, 90, 100) * 2, count=96, together=True, logged="Retract requests"),
    Case("sliding and full, 16 → 64", {"page_size": 16}, {"page_size": 64}, model="gemma3_tied"),
    Case("weights that differ, pages of 16", {"page_size": 16}, {"page_size": 16}, decode_model="qwen3_other",
         refused="has revision", lengths=(37,), config={"lease_s": 5}),
    Case("no plan for the pair", {"page_size": 16}, {"page_size": 64}, layout={}, lengths=(37,),
         compiled=(("16", "16"), ("64", "64")), config={**FILES, "lease_s": 5}, refused="no plan"),
    *(Case(f"a layout with another {key}", {"page_size": 16}, {"page_size": 64}, layout={key: number},
           config={"layout": FILES["layout"]}, stopped="I005: what SGLang allocated")
      for key, number in (("num_key_value_heads", 8), ("head_dim", 64), ("num_hidden_layers", 5))),
    *(Case(f"Mamba-2 and attention, {first} → {second}", {"page_size": first}, {"page_size": second},
           model="falcon_h1", lengths=(1, 20, 70), count=4, triton=True) for first, second in ((1, 64), (16, 64))),
    *(Case(f"{name}, pools of prefill (tp 1) and decode (tp 2)", {**UNUSED, "page_size": 64},
           {**UNUSED, "page_size": 64, "tp_size": 2}, model=model, lengths=(), decode_environment=THREADS)
      for name, model in POOLS.items()),
    *(case for mode in MODES for case in faults(mode, Fault)),
)  # fmt: skip
# Cases of which the time to the first token is compared: SGLang's own backend does them right.
TIMED = ("pages 1 → 1", "pages 16 → 16", "pages 64 → 64", "tp 1 → 2, pages of 16")

HND = {"SGLANG_USE_HND_KVCACHE": "1"}
SECOND, PLAIN, FP8 = {"base_gpu_id": 1}, {"disable_overlap_schedule": True}, {"kv_cache_dtype": "fp8_e4m3"}
GPU_CASES = (
    Case("memory of a GPU, CUDA graphs and the overlap scheduler, 16 → 64", SMALL, LARGE),
    Case("the same without the overlap scheduler", {**SMALL, **PLAIN}, {**LARGE, **PLAIN}),
    Case("pushed, 16 → 64", SMALL, LARGE, config={"mode": "push"}),
    Case("12 at once, prompts of 1 to 500 tokens, chunks of 256, GPU",
         {**SMALL, "chunked_prefill_size": 256}, LARGE, lengths=MANY, together=True),
    Case("chunks of 64, radix hits on both sides, twice, GPU",
         {**SMALL, "chunked_prefill_size": 64, **RADIX}, {**LARGE, **DECODE_RADIX}, times=2),
    Case("HND pools stop the engine", SMALL, LARGE, decode_environment=HND, stopped="HND KV cache"),
    Case("fp8 KV", {**SMALL, **FP8}, {**LARGE, **FP8}),
    Case("sliding and full, 16 → 64, GPU", SMALL, LARGE, model="gemma3_tied"),
    Case("Mamba-2 and attention, GPU", LARGE, LARGE, model="falcon_h1"),
    Case("Mamba-2, attention and MLP layers, GPU", LARGE, LARGE, model="nemotron_h"),
    Case("gated delta net and attention, GPU", LARGE, LARGE, model="qwen3_next"),
    Case("MLA, GPU", LARGE, LARGE, model="deepseek"),
    Case("MLA, 32 → 64", {"page_size": 32}, LARGE, model="deepseek"),
    Case("tp 1 → 2, GPU", SMALL, {**LARGE, "tp_size": 2}, gpus=2),
    Case("tp 2 → 1 on another GPU", {**SMALL, "tp_size": 2}, {**LARGE, **SECOND}, gpus=2),
    *(Case(f"GPU, {mode}: {fault.value}", {**SMALL, "chunked_prefill_size": 64}, LARGE, fault=fault,
           config={**SHORT, "mode": mode})
      for mode in MODES
      for fault in (Fault.PREFILL_KILLED_LATER, Fault.PREFILL_FROZEN_LATER, Fault.DECODE_ABORTS, Fault.PREFILL_ABORTS)),
)  # fmt: skip
