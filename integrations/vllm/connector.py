"""KvplanConnector: vLLM's interface for KV connectors, passed on to the scheduler's and the worker's half."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorHandshakeMetadata,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    SupportsHMA,
)

from kvplan.integrations.shared.config import ConnectorConfig, read_config
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.vllm.announcing import FleetAnnouncer, engine_role
from kvplan.integrations.vllm.dump import first_spec, is_state, limited, moved_groups
from kvplan.integrations.vllm.facts import adapter_folder, engine_facts
from kvplan.integrations.vllm.layout import check_needs, worker_layout
from kvplan.integrations.vllm.metadata import StepOrders, WorkerFacts
from kvplan.integrations.vllm.scheduler import ConnectorScheduler, GroupTable
from kvplan.integrations.vllm.setup import EngineRoles, checkpoint_revision, connector_worker
from kvplan.integrations.vllm.stats import KvplanPromMetrics, KvplanStats
from kvplan.integrations.vllm.worker import ConnectorWorker


@dataclass(frozen=True)
class OrdersMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """A step's orders on their way to the workers, None without orders. An `idle` step computes no token."""

    orders: StepOrders | None
    idle: bool = False


# The metadata of most steps, made once. Even calls that do nothing are slow here, because the model's step has just
# filled the processor's caches.
NO_ORDERS, RESTING = OrdersMetadata(None), OrdersMetadata(None, idle=True)
NO_RESULTS = KVConnectorTransferResults(frozenset(), frozenset(), frozenset())


@dataclass(frozen=True)
class FactsMetadata(KVConnectorHandshakeMetadata):  # type: ignore[misc]
    """A worker's facts on their way to the scheduler."""

    facts: WorkerFacts


class KvplanConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """vLLM's connector: it moves caches by plans, between engines that may differ."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        share_log()
        self._config = read_config(vllm_config.kv_transfer_config.kv_connector_extra_config)
        self._facts: WorkerFacts | None = None
        # This worker's address. It stays when memory is registered again, because peers learn it only once.
        self._address = ""
        self._worker: ConnectorWorker | None = None
        self._orders: StepOrders | None = None
        self._idle = self._offering = False
        # Whether to ask the worker for results: a step without any does not ask.
        self._under_way = self._measured = False
        tables = group_tables(kv_cache_config)
        recomputed = max(1, getattr(vllm_config, "num_prefill_lookahead_tokens", 0) - 1)
        transfer = vllm_config.kv_transfer_config
        decodes, refuses = transfer.is_kv_consumer, self._config.refuses
        offers, next_turn = self._offer() != "end", next_turn_seconds(self._config, transfer)
        self._announcer = FleetAnnouncer(self._config)
        self._scheduler = ConnectorScheduler(
            transfer.engine_id, tables, recomputed, decodes, refuses, adapter_folder, offers=offers, next_turn=next_turn
        )

    # The worker's half

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """Compare allocated memory with the layout, register it, begin to answer. Raises errors that stop the engine.

        First give back the earlier registration: its memory may not exist any more, and its workers have the ports.
        """
        self.shutdown()
        if self._vllm_config.model_config.enable_sleep_mode and not hasattr(KVConnectorBase_V1, "restore_kv_caches"):
            # Sleep unmaps the pool without telling connectors, and the registration would point to other memory.
            help = "leave --enable-sleep-mode out, or use vLLM 0.33 or later, which notifies connectors"
            raise ConnectorError("I007", "this release of vLLM does not tell connectors when it sleeps", help)
        transfer = self._vllm_config.kv_transfer_config
        facts = engine_facts(self._vllm_config, self._kv_cache_config)
        layout = worker_layout(self._config, facts, self._kv_cache_config, kv_caches)
        kinds = transfer.is_kv_producer, transfer.is_kv_consumer
        if transfer.is_kv_consumer:
            check_needs(layout.side)
        revision = self._config.revision or checkpoint_revision(self._vllm_config.model_config, facts.config)
        drafts = self._vllm_config.speculative_config is not None
        roles = EngineRoles(
            transfer.engine_id, self._run(), *kinds, self._first_port(), self._offer(), revision, drafts, self._address
        )
        self._worker, self._facts = connector_worker(self._config, layout, roles)
        self._address = self._facts.address

    def unregister_kv_caches(self) -> None:
        """Suspend for the engine's sleep: its memory has no owner. Raises HandleError while it is in use."""
        if self._worker is not None:
            self._worker.suspend()

    def restore_kv_caches(self) -> None:
        """Resume after the engine's sleep: the same memory is there again, empty."""
        if self._worker is not None:
            self._worker.resume()

    def get_handshake_metadata(self) -> FactsMetadata | None:
        return None if self._facts is None else FactsMetadata(self._facts)

    def bind_connector_metadata(self, connector_metadata: OrdersMetadata) -> None:
        """Begin a step. Orders that decode engines wait for do not wait for the model."""
        super().bind_connector_metadata(connector_metadata)
        self._idle = connector_metadata.idle
        if (orders := connector_metadata.orders) is not None and self._worker is not None:
            self._orders, self._offering, self._under_way = orders, bool(orders.chunks), True
            self._worker.hold(orders)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Begin the ordered loads, beside the model's step."""
        if self._orders is not None and self._worker is not None:
            orders, self._orders = self._orders, None
            self._worker.load(orders)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Do nothing: a request is scheduled only once all of it is there."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Offer the step's computed tokens of this layer if a decode engine may have them early."""
        if self._offering and self._worker is not None:
            self._worker.computed(layer_name)

    def wait_for_save(self) -> None:
        """Offer the step's computed tokens of the other layers. Nothing waits, because held blocks are not copied."""
        if self._offering and self._worker is not None:
            self._offering = False
            self._worker.computed()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        if not self._under_way or self._worker is None:
            return NO_RESULTS
        results = self._worker.ended(idle=self._idle)
        # Only orders begin anything.
        self._under_way, self._measured = self._worker.busy, self._worker.measured
        return KVConnectorTransferResults(results.sent, results.received, results.failed)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        results = self.get_transfer_results(finished_req_ids)
        return results.finished_sending, results.finished_recving

    def get_kv_connector_stats(self) -> KvplanStats | None:
        if not self._measured or self._worker is None:
            return None
        self._measured = False
        return KvplanStats(self._worker.measures())

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config: Any) -> str | None:
        """Return the order of axes in `options`. The engine uses it if its kernels can; otherwise its own."""
        return read_config(vllm_config.kv_transfer_config.kv_connector_extra_config).options.get("order")

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KvplanStats:
        return KvplanStats(data)

    @classmethod
    def build_prom_metrics(
        cls, vllm_config: Any, metric_types: Any, labelnames: list[str], per_engine_labelvalues: dict[int, list[object]]
    ) -> KvplanPromMetrics:
        return KvplanPromMetrics(vllm_config, metric_types, labelnames, per_engine_labelvalues)

    def shutdown(self) -> None:
        worker, self._worker, self._facts = self._worker, None, None
        self._orders, self._under_way, self._measured = None, False, False
        if worker is not None:
            worker.close()
        self._announcer.close()

    # The scheduler's half

    def bind_gpu_block_pool(self, gpu_block_pool: Any) -> None:
        """Take the pool that counts free blocks."""
        self._announcer.count(gpu_block_pool.get_num_free_blocks)

    def set_xfer_handshake_metadata_pp_aware(self, metadata: dict[tuple[int, int], FactsMetadata]) -> None:
        """Announce the engine in its fleet, if there is one: all workers have registered their memory and answer.

        Raises ConnectorError (I010) if the metadata is from another connector's workers.
        """
        if not all(isinstance(each, FactsMetadata) for each in metadata.values()):
            help = 'put KvplanConnector first in the "connectors" of MultiConnector, and leave other transports out'
            raise ConnectorError("I010", "MultiConnector passes on the handshake of another connector", help)
        workers, transfer = [each.facts for each in metadata.values()], self._vllm_config.kv_transfer_config
        self._scheduler.registered(workers)
        role = engine_role(transfer.is_kv_producer, transfer.is_kv_consumer)
        self._announcer.announce(transfer.engine_id, self._run(), role, workers, self._kv_cache_config.num_blocks)

    def get_loaded_kv_cache_group_ids(self, request: Any) -> tuple[int, ...]:
        """Return all groups that are moved: a request's own blocks come, not a cache's."""
        return tuple(self._kv_cache_config.transfer_group_ids)

    def on_new_request(self, request: Any) -> None:
        self._scheduler.arrived(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        external = self._scheduler.matched(request, num_computed_tokens)
        return external, external > 0

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        self._scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> OrdersMetadata:
        idle = not scheduler_output.total_num_scheduled_tokens
        if self._scheduler.quiet:
            return RESTING if idle else NO_ORDERS
        self._scheduler.scheduled(scheduler_output)
        return OrdersMetadata(self._scheduler.orders(), idle)

    def update_connector_output(self, connector_output: Any) -> None:
        if connector_output.finished_recving:
            self._scheduler.loaded(connector_output.finished_recving)

    def request_finished(self, request: Any, block_ids: list[int]) -> tuple[bool, dict[str, Any] | None]:
        return self.request_finished_all_groups(request, (block_ids,))

    def request_finished_all_groups(
        self, request: Any, block_ids: Sequence[list[int]]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self._scheduler.finished(request, block_ids, request.status.name)

    def _offer(self) -> str:
        """Return how early to offer prompts: drafts look ahead of computed tokens, split batches have layers twice."""
        if self._vllm_config.speculative_config is not None:
            return "end"
        split = self._vllm_config.parallel_config.use_ubatching
        return "steps" if split and self._config.offer == "layers" else self._config.offer

    def _run(self) -> str:
        """Return this run's id. A user may reuse an engine's id; its instance is new with each start."""
        return f"{self._vllm_config.kv_transfer_config.engine_id}.{self._vllm_config.instance_id}"

    def _first_port(self) -> int:
        """Return the port of this engine's first worker: engines of a data-parallel deployment have consecutive ranges.

        0 for any free port.
        """
        if not self._config.port:
            return 0
        parallel = self._vllm_config.parallel_config
        return int(self._config.port + parallel.data_parallel_index * parallel.world_size)


def share_log() -> None:
    """Put kvplan's events into vLLM's log, unless another handler takes them: Python shows only warnings by default."""
    ours, engine = logging.getLogger("kvplan"), logging.getLogger("vllm")
    if not ours.hasHandlers():
        ours.handlers = list(engine.handlers)
        ours.setLevel(ours.level or engine.level)


def next_turn_seconds(config: ConnectorConfig, transfer: Any) -> float:
    """Return how long to keep decoded caches for a conversation's next turn, 0 for never. Raises ConnectorError."""
    if config.bidirectional_kv_xfer and not (transfer.is_kv_producer and transfer.is_kv_consumer):
        help = 'give both engines "kv_role": "kv_both", or leave "bidirectional_kv_xfer" out'
        what = f"kv_connector_extra_config has bidirectional_kv_xfer, and kv_role is {transfer.kv_role}"
        raise ConnectorError("I002", what, help)
    return config.lease_s if config.bidirectional_kv_xfer else 0.0


def group_tables(caches: Any) -> tuple[GroupTable, ...]:
    """Return how to read the blocks of the moved groups."""
    numbered = zip(caches.transfer_group_ids, map(first_spec, moved_groups(caches)), strict=True)
    return tuple(_group_table(number, spec) for number, spec in numbered)


def _group_table(number: int, spec: Any) -> GroupTable:
    if is_state(spec):
        return GroupTable(number, spec.num_speculative_blocks, forgets=True)
    return GroupTable(number, forgets=limited(spec))
