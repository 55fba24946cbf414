"""Connected workers without requests: the share of a core that each takes."""

from __future__ import annotations

import time
from statistics import median, quantiles
from typing import TYPE_CHECKING

import numpy as np

from kvplan.bench.report import Row
from kvplan.bench.stage import plan_of, pool
from kvplan.calibrate.peers import room

if TYPE_CHECKING:
    from kvplan.plan.types import Plan

AREA = "idle workers"
MODEL, SIDE = "qwen3-0.6b", "tp=1"
MOST, SECONDS, SAMPLES, WORKERS = 0.002, 2.0, 5, 2


def measure(pairs: int) -> list[Row]:
    """Measure the processor time of this process while threads of its own poll a prefill and a decode worker."""
    shares = _shares(plan_of(MODEL, SIDE, SIDE))
    low, middle, high = quantiles(shares, n=4, method="inclusive")
    value, spread = f"{100 * middle:.2f} % of a core", f"{100 * low:.2f}..{100 * high:.2f}"
    met, target = median(shares) <= MOST, f"at most {100 * MOST:.1f} %"
    return [Row(AREA, "one worker", value, target, met, spread, len(shares), {"shares": shares})]


def _shares(plan: Plan) -> list[float]:
    from kvplan.demo.run import engines
    from kvplan.runtime import DecodeWorker, Nixl, PrefillWorker

    who, ends = engines("prefill", "decode"), (("prefill", plan.prefill), ("decode", plan.decode))
    memory = {name: np.zeros(room(side, 1), np.uint8) for name, side in ends}
    pools = {name: pool(side, 0, 1, memory[name].ctypes.data) for name, side in ends}
    identity, keys = who["prefill"]
    prefill = PrefillWorker(plan, 0, pools["prefill"], Nixl("prefill"), identity=identity, keys=keys)
    identity, keys = who["decode"]
    decode = DecodeWorker(plan, 0, pools["decode"], Nixl("decode"), identity=identity, keys=keys)
    try:
        prefill.announce([prefill.address])
        decode.connect(prefill.address, 60.0)
        decode.start()
        return [_share() for _ in range(SAMPLES)]
    finally:
        decode.close()
        prefill.close()


def _share() -> float:
    began = time.process_time()
    time.sleep(SECONDS)
    return (time.process_time() - began) / SECONDS / WORKERS
