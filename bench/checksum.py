"""Checksums of one read's bytes, on the host: bytes per second of one core, and the cost of a sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvplan.bench.report import Row
from kvplan.bench.sample import clock
from kvplan.bench.stage import filled, plan_of, shuffled

if TYPE_CHECKING:
    from kvplan.plan.request import Request
    from kvplan.plan.types import Plan
    from kvplan.runtime.memory.register import Pool

AREA = "checksums"
TOKENS = 2048
CASES = (
    ("heads first", "llama-3.3-70b", "tp=4", "tp=4"),
    ("tokens first", "llama-3.3-70b", "tp=4,order=nhd", "tp=4"),
    ("latents of one byte", "deepseek-v3", "tp=4,kv_dtype=fp8_ds_mla", "tp=4,kv_dtype=fp8_ds_mla"),
)
SAMPLES = (1, 16)


def measure(pairs: int) -> list[Row]:
    """Measure without a target: the bound is one multiplication and addition of 64 bits per word of 16."""
    return [row for name, *pair in CASES for row in _case(name, plan_of(*pair), pairs)]


def _case(name: str, plan: Plan, pairs: int) -> list[Row]:
    from kvplan.plan.request import Request

    pool, request = filled(plan.prefill, 0, TOKENS), Request("r", (0, TOKENS), shuffled(plan.prefill, TOKENS), {})
    return [_row(name, plan, pool, request, every, pairs) for every in SAMPLES]


def _row(name: str, plan: Plan, pool: Pool, request: Request, every: int, pairs: int) -> Row:
    from kvplan.runtime.checksum.checksum import Sample, of_read

    def run() -> object:
        return of_read(plan, 0, 0, "prefill", pool, request, Sample(every))

    seconds, size = min(clock(run) for _ in range(max(3, pairs // 10))), _bytes(plan)
    words = f"{size / seconds / 1e9:.2f} GB/s" if every == 1 else f"{1e3 * seconds:.1f} ms"
    which = "all tokens" if every == 1 else f"one token in {every}"
    return Row(AREA, f"{name}, {which}", words, details={"seconds": seconds, "bytes": size, "every": every})


def _bytes(plan: Plan) -> int:
    """Return the bytes of all tokens on worker 0, including padding."""
    from kvplan.plan import planes as names

    kernel = {group.name: group.kernel for group in plan.prefill.groups}
    return sum(plane.page * TOKENS // kernel[plane.group] for plane in names.planes(plan.prefill.workers[0]))
