"""Time kvplan and vLLM's NixlConnector from the same block lists to posted indices, in turns: `… PAIRS FILE`.

Runs in vLLM's environment, started by bench/peers.py; writes rows as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import vllm

from kvplan.bench import vllm_worker as peer
from kvplan.bench.lists import BlockLists, draw, preparer
from kvplan.bench.report import Row, faster
from kvplan.bench.sample import WARMUP, interleave
from kvplan.bench.stage import plan_of
from kvplan.plan.match import forget_shapes

AREA = f"block lists to posted ids, vLLM {vllm.__version__}"
DENSE = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 28672,
    "max_position_embeddings": 131072, "vocab_size": 128256,
}  # fmt: skip
HYBRID = {
    "model_type": "nemotron_h", "architectures": ["NemotronHForCausalLM"], "hidden_size": 2688,
    "num_hidden_layers": 52, "hybrid_override_pattern": "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME",
    "num_attention_heads": 32, "num_key_value_heads": 2, "head_dim": 128, "mamba_num_heads": 64, "mamba_head_dim": 64,
    "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "mamba_ssm_cache_dtype": "float32",
    "intermediate_size": 1856, "max_position_embeddings": 262144, "vocab_size": 131072,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A pair of sides for both: kvplan's model and vLLM's configuration of it; decode reads `tokens` tokens."""

    model: str
    config: Mapping[str, Any]
    prefill: int
    decode: int
    tokens: int
    least: float
    block: int = 16
    prefill_block: int = 0

    @property
    def name(self) -> str:
        block = f",block={self.prefill_block}" if self.prefill_block else ""
        return f"{self.model} tp={self.prefill}{block} -> tp={self.decode}"


CASES = (
    Case("llama-3.3-70b", DENSE, 8, 8, 32768, 5.0),
    Case("llama-3.3-70b", DENSE, 8, 4, 32768, 8.0),
    Case("nemotron-3-nano-30b", HYBRID, 4, 1, 8192, 5.0),
    Case("nemotron-3-nano-30b", HYBRID, 4, 1, 8192, 5.0, prefill_block=2096),
)


def measure(pairs: int) -> list[Row]:
    return [row for case in CASES for row in rows_of(case, pairs)]


def rows_of(case: Case, pairs: int) -> list[Row]:
    """Return rows of the same lists by both, for known and new request shapes; or why vLLM refuses the pair."""
    block = f",block={case.prefill_block}" if case.prefill_block else ""
    plan = plan_of(case.model, f"tp={case.prefill}{block}", f"tp={case.decode}")
    lists = draw(plan, case.tokens)
    prepare = preparer(plan, lists)

    def prepare_new() -> int:
        forget_shapes()
        return prepare()

    with TemporaryDirectory() as folder:
        worker, sources = engines(case, lists, Path(folder))
    try:
        peer.introduce(worker, sources, case.prefill)
    except (AssertionError, NotImplementedError, RuntimeError, ValueError) as error:
        return [Row(AREA, f"{case.name}: {str(error) or type(error).__name__}", "refused")]
    read = reader(worker, case, lists, 2 * (pairs + WARMUP))
    actions = (("shape known", prepare), ("shape new", prepare_new))
    return [row_of(f"{case.name}, {name}", action, read, worker, case.least, pairs) for name, action in actions]


def engines(case: Case, lists: BlockLists, folder: Path) -> tuple[Any, list[Any]]:
    """Return vLLM's decode worker 0, and the prefill workers that it reads from."""
    prefill = engine(case, case.prefill, case.prefill_block or case.block, folder)
    decode = engine(case, case.decode, case.block, folder)
    ranks = range(max(case.prefill // case.decode, 1))
    sources = [peer.worker(*prefill, rank, lists.pool, peer.PRODUCER) for rank in ranks]
    worker = peer.worker(*decode, 0, lists.pool, "decode")
    for made, ids in ((sources[0], lists.prefill), (worker, lists.decode)):
        assert peer.block_counts(made, case.tokens) == [len(each) for each in ids.values()], "other groups"
    return worker, sources


def engine(case: Case, size: int, block: int, folder: Path) -> tuple[Any, Mapping[str, Any]]:
    config = peer.engine_config(folder, case.config, size, case.tokens, block)
    layers = case.config.get("hybrid_override_pattern", "*" * int(case.config["num_hidden_layers"]))
    attention, states = ([at for at, sort in enumerate(layers) if sort == mark] for mark in "*M")
    return config, peer.cache_specs(config, attention, states)


def reader(worker: Any, case: Case, lists: BlockLists, count: int) -> Callable[[], None]:
    """Return a function with which vLLM reads the next of `count` requests, made before, like by its scheduler."""
    local, remote = list(lists.decode.values()), list(lists.prefill.values())
    orders = iter([peer.read_order(number, local, remote, case.prefill) for number in range(count)])
    return lambda: worker.start_load_kv(next(orders))


def row_of(
    name: str, prepare: Callable[[], int], read: Callable[[], None], worker: Any, least: float, pairs: int
) -> Row:
    worker.nixl_wrapper.posted = 0
    row = faster(AREA, name, interleave(prepare, read, pairs, WARMUP), least)
    assert worker.nixl_wrapper.posted, "vLLM posted nothing"
    row.details["descriptors"] = prepare()
    row.details["vllm_descriptors"] = worker.nixl_wrapper.posted // (pairs + WARMUP)
    return row


def main(words: Sequence[str]) -> None:
    pairs, path = words
    Path(path).write_text(json.dumps([asdict(row) for row in measure(int(pairs))]))


if __name__ == "__main__":
    main(sys.argv[1:])
