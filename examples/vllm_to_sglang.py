"""Caches of two vLLM workers, moved into a pool as SGLang has it, on a CPU and without either engine.

docs/sglang.md says what it shows. Run it with `python examples/vllm_to_sglang.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.check.sample import sample_range, sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.dsl.library import load
from kvplan.plan.planes import planes
from kvplan.plan.types import Side
from kvplan.runtime import Blocks, DecodeWorker, Hub, Identity, InMemory, Memory, Plain, PrefillWorker, Request, views

MODEL, PREFILL, DECODE = "qwen3-0.6b", "tp=2", "engine=sglang,tp=1,block=64"
LAYERS, HEADS, DIM = 28, 8, 128
PREFILL_BLOCK, PAGE, PAGES = 16, 64, 4
TOKENS = 100


@dataclass(frozen=True)
class PoolArgs:
    """What SGLang's KVArgs say of a pool of keys and values: K of every layer, then V of every layer.

    `kv_item_lens` are the bytes of a page.
    """

    kv_data_ptrs: list[int]
    kv_data_lens: list[int]
    kv_item_lens: list[int]


def compiled() -> Compiled:
    """The plan of the pair. Raises Refused where there is none."""
    return compile_pair(load(), MODEL, PREFILL, DECODE)


def simulated(pair: Compiled) -> bool:
    """Whether the plan's copies of a sample request are right, by naive indexing of both layouts."""
    request = sample_request(pair.prefill, pair.decode, sample_range(pair.prefill, pair.decode))
    return simulate(pair.plan, pair.prefill, pair.decode, copies(pair.plan, request), request).right


def pool_args(pool: np.ndarray) -> PoolArgs:
    """The arguments of a pool of (K and V, layer, token, head, dim)."""
    buffers = [pool[half, layer] for half in range(2) for layer in range(LAYERS)]
    item = PAGE * buffers[0][0].nbytes
    return PoolArgs([each.ctypes.data for each in buffers], [each.nbytes for each in buffers], [item] * len(buffers))


def pool_memory(side: Side, args: PoolArgs) -> dict[str, Memory]:
    """The planes of SGLang's worker 0 by what its KVArgs say: parts 0 and 1 of a layer are its K and its V."""
    memory = {}
    for plane in planes(side.workers[0]):
        number = int(plane.part or 0) * LAYERS + int(plane.layer or 0)
        size, item = args.kv_data_lens[number], args.kv_item_lens[number]
        memory[plane.name] = Memory(args.kv_data_ptrs[number], item, size // item, size)
    return memory


def computed(seed: int = 0) -> list[dict[str, np.ndarray]]:
    """Memory of both vLLM workers, half of the heads each: (block, head, token, K and V), bf16 as two bytes."""
    random, shape = np.random.default_rng(seed), (16, HEADS // 2, PREFILL_BLOCK, 2 * DIM)
    return [{f"attention.{n}": random.integers(0, 1 << 16, shape, np.uint16) for n in range(LAYERS)} for _ in range(2)]


def moved(pair: Compiled, sources: list[dict[str, np.ndarray]], pool: np.ndarray, kv_indices: np.ndarray) -> str:
    """Move TOKENS tokens into the pages `kv_indices` of the pool; how it ended."""
    hub, plan, engine = Hub(), pair.plan, Identity("prefill")
    prefill = [
        PrefillWorker(plan, n, views(plan.prefill, n, memory), InMemory(hub), identity=engine, keys=Plain())
        for n, memory in enumerate(sources)
    ]
    target = views(plan.decode, 0, pool_memory(plan.decode, pool_args(pool)))
    decode = DecodeWorker(plan, 0, target, InMemory(hub), identity=Identity("decode"), keys=Plain())
    held = {"attention": Blocks(0, np.arange(7, 0, -1))}
    for worker in prefill:
        worker.announce([each.address for each in prefill])
        worker.hold("room-1", held)
    try:
        decode.connect(prefill[0].address, timeout=10)
        request = Request("room-1", (0, TOKENS), held, {"attention": Blocks(0, kv_indices)})
        moved = decode.submit(request, 10).wait()
        return f"{moved.state}, {moved.bytes} bytes"
    finally:
        decode.close()
        for worker in prefill:
            worker.close()


def expected(sources: list[dict[str, np.ndarray]], kv_indices: np.ndarray) -> np.ndarray:
    """The pool as it has to be, token by token."""
    pool = np.zeros((2, LAYERS, PAGES * PAGE, HEADS, DIM), np.uint16)
    for token in range(TOKENS):
        slot = kv_indices[token // PAGE] * PAGE + token % PAGE
        block, row = 7 - token // PREFILL_BLOCK, token % PREFILL_BLOCK
        for layer in range(LAYERS):
            both = np.concatenate([worker[f"attention.{layer}"][block, :, row] for worker in sources])
            pool[0, layer, slot], pool[1, layer, slot] = both[:, :DIM], both[:, DIM:]
    return pool


def main() -> None:
    pair, kv_indices = compiled(), np.array([3, 1])
    print(f"{pair.plan.prefill.key} -> {pair.plan.decode.key}: plan {pair.plan.digest}")
    print(f"simulated, every byte: {'right' if simulated(pair) else 'wrong'}")
    sources, pool = computed(), np.zeros((2, LAYERS, PAGES * PAGE, HEADS, DIM), np.uint16)
    print(f"moved: {moved(pair, sources, pool, kv_indices)}")
    print(f"the pool is as it has to be: {np.array_equal(pool, expected(sources, kv_indices))}")


if __name__ == "__main__":
    main()
