"""KvplanECConnector: vLLM's interface for encoder caches, passed on to the scheduler's and the worker's half."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorBase, ECConnectorMetadata, ECConnectorRole

from kvplan.integrations.shared.config import ConnectorConfig, read_config
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.served import another_layout
from kvplan.integrations.vllm.connector import share_log
from kvplan.integrations.vllm.encoder.facts import EngineItems, encoder_facts, load_device
from kvplan.integrations.vllm.encoder.layout import PLACE, EncoderLayout, encoder_layout
from kvplan.integrations.vllm.encoder.metadata import NOTHING, StepItems
from kvplan.integrations.vllm.encoder.scheduler import EncoderScheduler
from kvplan.integrations.vllm.encoder.setup import EncoderEngine, connector_scheduler, shared_rows
from kvplan.integrations.vllm.encoder.transfers import ItemTransfers
from kvplan.integrations.vllm.encoder.worker import EncoderCache, EncoderWorker

# The ports of the connector for keys and values begin at 7600.
PORT = 7500
OF_TOKENS = "it is about caches of tokens: leave it out, or give it in kv_connector_extra_config"
UNREAD = {
    **dict.fromkeys(("offer", "bidirectional_kv_xfer", "stage_bytes"), OF_TOKENS),
    **dict.fromkeys(
        ("fleet_url", "fleet_prefix", "fleet_ca", "fleet_cert", "fleet_cert_key"),
        "a fleet knows engines by their caches of tokens: give it in kv_connector_extra_config",
    ),
}
HOOKS = ("ensure_cache_available", "start_save_caches", "take_unavailable_requests", "update_state_after_free")


@dataclass(frozen=True)
class ItemsMetadata(ECConnectorMetadata):  # type: ignore[misc]
    """A step's orders on their way to the workers."""

    orders: StepItems


NO_ITEMS = ItemsMetadata(NOTHING)


class KvplanECConnector(ECConnectorBase):  # type: ignore[misc]
    """vLLM's connector for encoder caches: items are moved by plans, held by leases, compared by checksums."""

    def __init__(self, vllm_config: Any, role: ECConnectorRole) -> None:
        super().__init__(vllm_config=vllm_config, role=role)
        share_log()
        check_release(ECConnectorBase)
        check_adapters(vllm_config.lora_config)
        given = vllm_config.ec_transfer_config.ec_connector_extra_config
        config = read_config(given, place=PLACE, unread=UNREAD, port=PORT)
        facts = encoder_facts(vllm_config)
        layout = encoder_layout(config, facts)
        check_widths(getattr(vllm_config.ec_transfer_config, "mm_encoder_output_widths", {}), layout)
        engine = encoder_engine(vllm_config, config, facts.revision)
        self._rows = shared_rows(layout, engine)
        self._worker: EncoderWorker | None = None
        self._scheduler: EncoderScheduler | None = None
        self._transfers: ItemTransfers | None = None
        self._items = EngineItems(vllm_config.model_config)
        parallel = vllm_config.parallel_config
        if role == ECConnectorRole.WORKER:
            rank, dtype = parallel.rank, vllm_config.model_config.dtype
            self._worker = EncoderWorker(self._rows, rank, rank == 0, layout.width, dtype, load_device())
            self._rows.join(rank)
            return
        self._rows.unlink()
        copying = parallel.world_size // parallel.pipeline_parallel_size
        self._scheduler, self._transfers = connector_scheduler(config, layout, engine, self._rows, copying)
        self._scheduler.encodable = self._items.encodable

    # The worker's half

    def start_save_caches(self, **kwargs: Any) -> None:
        """Save items that the engine has from an earlier step, because the encoder does not run for them again."""
        worker = self._of_worker()
        worker.begin(self._get_connector_metadata().orders)
        worker.save_all(kwargs["encoder_cache"])

    def start_load_caches(self, encoder_cache: EncoderCache, **kwargs: Any) -> None:
        """Load items that the scheduler has in the pool: it schedules a step only once they are there."""
        worker = self._of_worker()
        worker.begin(self._get_connector_metadata().orders)
        worker.load(encoder_cache)

    def save_caches(self, encoder_cache: EncoderCache, mm_hash: str, **kwargs: Any) -> None:
        """Save an item that the encoder has just made."""
        if self.is_producer:
            self._of_worker().save(encoder_cache, mm_hash)

    def get_finished(self, finished_req_ids: set[str]) -> tuple[set[str] | None, set[str] | None]:
        """End a step: none of its orders is in progress. No request's end waits for items."""
        self._of_worker().end()
        return None, None

    # The scheduler's half

    def ensure_cache_available(self, request: Any, num_computed_tokens: int) -> bool:
        return self._of_scheduler().available(request, num_computed_tokens)

    def has_cache_item(self, identifier: str) -> bool:
        return self._of_scheduler().has(identifier)

    def update_state_after_alloc(self, request: Any, index: int) -> None:
        self._of_scheduler().allocated(request.mm_features[index])

    def update_state_after_free(self, request: Any, index: int) -> None:
        self._of_scheduler().passed(request, request.mm_features[index])

    def take_unavailable_requests(self) -> set[str]:
        return self._of_scheduler().unavailable()

    def build_connector_meta(self, scheduler_output: Any) -> ItemsMetadata:
        new, tokens = scheduler_output.scheduled_new_reqs, scheduler_output.total_num_scheduled_tokens
        orders = self._of_scheduler().orders(new, tokens)
        return ItemsMetadata(orders) if orders.step else NO_ITEMS

    def request_finished(self, request: Any) -> tuple[bool, dict[str, Any] | None]:
        """Return the parameters of a request's items for the next engine, with the keys of vLLM's own connectors."""
        held = self._of_scheduler().finished(request)
        if not held:
            return False, None
        about = self._items.metadata(request.mm_features)
        return False, {hash: {**about.get(hash, {}), **params} for hash, params in held.items()}

    def shutdown(self) -> None:
        transfers, self._transfers = self._transfers, None
        if transfers is not None:
            transfers.close()

    def _of_worker(self) -> EncoderWorker:
        assert self._worker is not None
        return self._worker

    def _of_scheduler(self) -> EncoderScheduler:
        assert self._scheduler is not None
        return self._scheduler


def check_release(base: type) -> None:
    """Raises ConnectorError (I011) if this release of vLLM does not let requests wait for items."""
    if missing := [name for name in HOOKS if not hasattr(base, name)]:
        help = "take vLLM 0.32 or later"
        raise ConnectorError("I011", f"this release of vLLM has no {' and no '.join(missing)} for items", help)


def check_adapters(lora: Any) -> None:
    """Raises ConnectorError (I012) if LoRAs change the encoder's output: a hash has only their names."""
    if lora is not None and getattr(lora, "enable_tower_connector_lora", False):
        help = "leave --enable-tower-connector-lora out, or run the encoder in the engine that prefills"
        raise ConnectorError(
            "I012", "vLLM is started with LoRAs for its encoder, whose items kvplan does not move", help
        )


def check_widths(measured: Mapping[str, int], layout: EncoderLayout) -> None:
    """Raises ConnectorError (I005) if no item has rows of the layout's width, as vLLM measured its encoder."""
    if measured and layout.width not in measured.values():
        said = ", ".join(f"{elements} of {modality}" for modality, elements in sorted(measured.items()))
        differences = [f"a row: the engine has {said} elements, the layout {layout.width}"]
        help = 'write a model file with that width (docs/vllm.md), and give both engines "layout": its path'
        raise another_layout(f"what the encoder makes is not as {layout.model} says", differences, help)


def encoder_engine(vllm_config: Any, config: ConnectorConfig, revision: str) -> EncoderEngine:
    """Return the engine. A user may give it the same id each time; its instance is new with each start."""
    transfer, parallel = vllm_config.ec_transfer_config, vllm_config.parallel_config
    number = parallel.data_parallel_index
    run = f"{transfer.engine_id}.{vllm_config.instance_id}"
    return EncoderEngine(
        transfer.engine_id,
        run,
        revision,
        transfer.is_ec_producer,
        transfer.is_ec_consumer,
        memory=f"{run}.{number}",
        workers=parallel.world_size,
        pool_bytes=int(transfer.ec_buffer_size),
        port=config.port,
        number=number,
    )
