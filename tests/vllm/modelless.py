"""An engine of vLLM without a model: its own core, scheduler and cache planning, and workers that compute nothing.

Runs in vLLM's environment, or one with another release of vLLM before it: kernels and weights are not needed. Each
sampled token is the same, and pages hold what was written to them when they were allocated.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import torch
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from vllm import SamplingParams
from vllm.distributed import parallel_state
from vllm.distributed.kv_transfer import kv_transfer_state
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.attention.backends.utils import record_kv_cache_layout
from vllm.v1.engine.core import EngineCore
from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.worker.gpu_worker import Worker as GpuWorker
from vllm.v1.worker.kv_connector_model_runner_mixin import KVConnectorModelRunnerMixin
from vllm.v1.worker.utils import allocate_kv_cache
from vllm.v1.worker.worker_base import CompilationTimes

from kvplan.integrations.vllm.connector import KvplanConnector

LAYERS, HEADS, DIM, DTYPE = 2, 4, 32, torch.float32
ORDER = "LBHNC"
TOKEN = 7
STEPS_S = 60.0
OPTIONS = {
    "skip_tokenizer_init": True,
    "dtype": "float32",
    "enforce_eager": True,
    "max_model_len": 256,
    "max_num_batched_tokens": 1024,
    "max_num_seqs": 8,
}


class BlankWorker:
    """A worker of vLLM's as far as its executor and its connector know: memory, and the connector's calls in order."""

    def __init__(self, config: Any, rank: int) -> None:
        self.vllm_config, self.rank, self.sleep_mode_backend = config, rank, self
        nothing: dict[str, torch.Tensor] = {}
        self._sleep_saved_parameters = self._sleep_saved_buffers = self._sleep_saved_draft_buffers = nothing
        self.tensors: dict[str, torch.Tensor] = {}

    def get_kv_cache_spec(self) -> dict[str, FullAttentionSpec]:
        heads = HEADS // self.vllm_config.parallel_config.tensor_parallel_size
        block = self.vllm_config.cache_config.block_size
        spec = FullAttentionSpec(block_size=block, num_kv_heads=heads, head_size=DIM, dtype=DTYPE)
        return {f"model.layers.{layer}.self_attn.attn": spec for layer in range(LAYERS)}

    def get_supported_kv_cache_layouts(self) -> list[str]:
        return [ORDER]

    def set_kv_cache_layout(self, layout: str, *_: int) -> None:
        record_kv_cache_layout(self.vllm_config.cache_config, layout)

    def determine_available_memory(self) -> int:
        return 1 << 28

    def initialize_from_config(self, every: Sequence[Any]) -> None:
        caches = every[self.rank]
        layout = self.vllm_config.cache_config.get_resolved_kv_cache_layout()
        sizes = [group.kv_cache_spec.block_size for group in caches.kv_cache_groups]
        self.tensors = allocate_kv_cache(caches, torch.device("cpu"), layout, sizes)
        self.fill()
        with self.here():
            self.connector = KVConnectorFactory.create_connector(self.vllm_config, KVConnectorRole.WORKER, caches)
            self.connector.register_kv_caches(self.tensors)

    def fill(self) -> None:
        """Other numbers in each page than before."""
        for tensor in self.tensors.values():
            tensor.copy_(torch.rand(tensor.shape))

    def compile_or_warm_up_model(self) -> CompilationTimes:
        return CompilationTimes(language_model=0.0, encoder=0.0)

    def get_kv_connector_handshake_metadata(self) -> dict[tuple[int, int], Any]:
        return pickle.loads(pickle.dumps({(0, self.rank): self.connector.get_handshake_metadata()}))

    def execute_model(self, orders: Any) -> ModelRunnerOutput:
        """A step: the connector's calls as vLLM's own runner makes them, and a token of each request."""
        orders = pickle.loads(pickle.dumps(orders))
        with self.here():
            output = KVConnectorModelRunnerMixin.kv_connector_no_forward(orders, self.vllm_config)
        names = list(orders.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: index for index, name in enumerate(names)},
            sampled_token_ids=[[TOKEN] for _ in names],
            kv_connector_output=output.kv_connector_output,
        )

    def sleep(self, level: int) -> None:
        """Sleep like vLLM's own worker on GPUs, except that memory is only overwritten."""
        with self.here(), patch.multiple(torch.accelerator, synchronize=Mock(), get_memory_info=lambda: (0, 0)):
            GpuWorker.sleep(self, level)

    def wake_up(self, tags: list[str] | None) -> None:
        with self.here():
            GpuWorker.wake_up(self, tags)

    def suspend(self, level: int) -> None:
        for tensor in self.tensors.values():
            tensor.zero_()

    def resume(self, tags: list[str] | None) -> None:
        """Nothing is there."""

    def synchronize_device(self) -> None:
        """Do nothing: no device runs."""

    def reset_mm_cache(self) -> None:
        """Do nothing: no model takes items."""

    def reset_encoder_cache(self) -> None:
        """Do nothing: no model encodes items."""

    def shutdown(self) -> None:
        self.connector.shutdown()

    def here(self) -> Here:
        return Here(self)


class Here:
    """vLLM's global words for a worker's place and connector, one worker at a time."""

    def __init__(self, worker: BlankWorker) -> None:
        self._worker = worker

    def __enter__(self) -> None:
        ranks = {"tp": self._worker.rank, "pp": 0, "dcp": 0, "pcp": 0}
        for axis, rank in ranks.items():
            setattr(parallel_state, f"get_{axis}_group", lambda rank=rank: SimpleNamespace(rank_in_group=rank))
        kv_transfer_state._KV_CONNECTOR_AGENT = getattr(self._worker, "connector", None)

    def __exit__(self, *_: object) -> None:
        kv_transfer_state._KV_CONNECTOR_AGENT = None


class BlankExecutor(Executor):  # type: ignore[misc]
    """Workers of one process, one after the other; what they say is aggregated as vLLM does."""

    workers: list[BlankWorker]

    def _init_executor(self) -> None:
        self.workers = [BlankWorker(self.vllm_config, rank) for rank in range(self.parallel_config.world_size)]

    def collective_rpc(self, method: Any, timeout: Any = None, args: Any = (), kwargs: Any = None, **_: Any) -> Any:
        return [getattr(worker, method)(*args, **(kwargs or {})) for worker in self.workers]

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        outputs = self.collective_rpc("execute_model", args=(scheduler_output,))
        assert self.kv_output_aggregator is not None
        result: Future[Any] = Future()
        result.set_result(self.kv_output_aggregator.aggregate(outputs, 0))
        return result if non_block else result.result()

    def check_health(self) -> None:
        pass


class BlankEngine:
    """One engine: `core` is vLLM's. `extra` is what the connector is told, `more` are options of the engine."""

    def __init__(self, model: str, extra: dict[str, Any], role: str, policy: str, sleeps: bool, **more: Any) -> None:
        transfer = {
            "kv_connector": "KvplanConnector",
            "kv_role": role,
            "kv_load_failure_policy": policy,
            "kv_connector_extra_config": {"engine": "vllm", **extra},
        }
        options = {**OPTIONS, **more, "kv_transfer_config": transfer}
        config = EngineArgs(model=model, **options).create_engine_config()
        config.model_config.enable_sleep_mode = sleeps  # which is refused on CPUs
        self.core = EngineCore(config, BlankExecutor, log_stats=True)
        self.registry = CollectorRegistry()
        kinds = {kind: partial(kind, registry=self.registry) for kind in (Counter, Gauge, Histogram)}
        self.prometheus = KvplanConnector.build_prom_metrics(config, kinds, ["engine"], {0: ["0"]})
        self.free = self.free_blocks()
        self.ended: dict[str, Any] = {}

    @property
    def scheduler(self) -> Any:
        return self.core.scheduler

    @property
    def workers(self) -> list[BlankWorker]:
        return self.core.model_executor.workers

    def free_blocks(self) -> int:
        return int(self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks())

    def metric(self, name: str) -> float | None:
        return self.registry.get_sample_value(f"vllm:kvplan_{name}", {"engine": "0"})

    def ask(self, name: str, prompt: Sequence[int], params: dict[str, Any] | None = None, tokens: int = 4) -> Request:
        sampling = SamplingParams(
            temperature=0.0, max_tokens=tokens, ignore_eos=True, extra_args={"kv_transfer_params": params}
        )
        request = Request(name, list(prompt), sampling, None, block_hasher=self.core.request_block_hasher)
        self.core.add_request(request)
        return request

    def step(self) -> None:
        outputs, _ = self.core.step()
        for each in outputs.values():
            if each.scheduler_stats is not None and each.scheduler_stats.kv_connector_stats:
                self.prometheus.observe(each.scheduler_stats.kv_connector_stats)
            self.ended |= {output.request_id: output for output in each.outputs if output.finish_reason is not None}

    def until(self, what: Callable[[], bool], *others: BlankEngine) -> None:
        """Step this engine and `others` until something holds. Raises AssertionError where it never does."""
        end = time.monotonic() + STEPS_S
        while not what():
            assert time.monotonic() < end, f"not in {STEPS_S} s"
            for engine in (self, *others):
                engine.step()
            time.sleep(0.001)

    def tokens_of(self, blocks: Sequence[int], count: int) -> list[torch.Tensor]:
        """By layer what blocks hold of `count` tokens, heads of all workers side by side: (head, token, content)."""
        names = list(self.workers[0].tensors)
        return [torch.cat([pages(worker.tensors[name], blocks, count) for worker in self.workers]) for name in names]

    def close(self) -> None:
        self.core.shutdown()


def pages(tensor: torch.Tensor, blocks: Sequence[int], count: int) -> torch.Tensor:
    return torch.cat([tensor[block] for block in blocks], dim=1)[:, :count].clone()
