"""The connector by the calls that vLLM makes, in their order: vLLM's own modules are not needed for that."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from enum import Enum
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tests.demo.test_demo import needs_nixl
from tests.integrations.vllm.encoder.items import FACTS, FakeRequest, content, request
from tests.runtime.helpers.waiting import until

from kvplan.integrations.shared.errors import ConnectorError

NAME = "kvplan.integrations.vllm.encoder.connector"
BASE = "vllm.distributed.ec_transfer.ec_connector.base"
ITEMS = {"a": 3, "b": 70}


class Role(Enum):
    SCHEDULER = 0
    WORKER = 1


class FakeBase:
    """The part of ECConnectorBase that the connector uses."""

    def __init__(self, vllm_config: Any, role: Role) -> None:
        self.is_producer = vllm_config.ec_transfer_config.is_ec_producer

    def bind_connector_metadata(self, metadata: Any) -> None:
        self.metadata = metadata

    def _get_connector_metadata(self) -> Any:
        return self.metadata

    def ensure_cache_available(self) -> None: ...
    def start_save_caches(self) -> None: ...
    def take_unavailable_requests(self) -> None: ...
    def update_state_after_free(self) -> None: ...


class FakeItems:
    """vLLM's functions for items."""

    def __init__(self, model: Any) -> None: ...

    def encodable(self, feature: Any) -> bool:
        return feature.data is not None

    def metadata(self, features: Any) -> dict[str, dict[str, Any]]:
        return {each.identifier: {"item_indices": [n]} for n, each in enumerate(features)}


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    stubs = {
        BASE: module(BASE, ECConnectorBase=FakeBase, ECConnectorMetadata=type("M", (), {}), ECConnectorRole=Role),
        "kvplan.integrations.vllm.connector": module("connector", share_log=lambda: None),
        "kvplan.integrations.vllm.encoder.facts": module(
            "facts", EngineItems=FakeItems, encoder_facts=lambda config: config.facts, load_device=lambda: "cpu"
        ),
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield importlib.import_module(NAME)
    del sys.modules[NAME]


def config(name: str, role: str, workers: int = 1, widths: dict[str, int] | None = None, **extra: Any) -> Any:
    transfer = SimpleNamespace(
        engine_id=name,
        is_ec_producer=role != "ec_consumer",
        is_ec_consumer=role != "ec_producer",
        ec_connector_extra_config=extra,
        ec_buffer_size=1e6,
        mm_encoder_output_widths=widths or {},
    )
    return SimpleNamespace(
        ec_transfer_config=transfer,
        instance_id="i",
        parallel_config=SimpleNamespace(
            rank=0, world_size=workers, pipeline_parallel_size=1, data_parallel_index=0
        ),
        model_config=SimpleNamespace(dtype=torch.float32),
        lora_config=None,
        facts=FACTS,
    )  # fmt: skip


class FakeEngine:
    """vLLM's scheduler and workers as far as the connector sees them: orders are pickled on their way."""

    def __init__(self, connector: ModuleType, about: Any) -> None:
        parallel, self.workers = about.parallel_config, []
        for rank in range(parallel.world_size):
            parallel.rank = rank
            self.workers.append(connector.KvplanECConnector(about, Role.WORKER))
        self.scheduler = connector.KvplanECConnector(about, Role.SCHEDULER)
        self.caches: list[dict[str, torch.Tensor]] = [{} for _ in self.workers]

    def step(self, *requests: FakeRequest, encodes: bool = False) -> None:
        output = SimpleNamespace(
            scheduled_new_reqs=[each.new for each in requests], total_num_scheduled_tokens=len(requests)
        )
        orders = pickle.dumps(self.scheduler.build_connector_meta(output))
        for worker, cache in zip(self.workers, self.caches, strict=True):
            worker.bind_connector_metadata(pickle.loads(orders))
            if worker.is_producer:
                worker.start_save_caches(encoder_cache=cache)
            if not encodes:
                worker.start_load_caches(cache)
            for feature in (feature for each in requests for feature in each.mm_features if encodes):
                hash = feature.identifier
                cache[hash] = content(hash, feature.mm_position.length)
                worker.save_caches(encoder_cache=cache, mm_hash=hash)
            assert worker.get_finished(set()) == (None, None)

    def close(self) -> None:
        for each in (self.scheduler, *self.workers):
            each.shutdown()


@needs_nixl
@pytest.mark.parametrize("workers", [1, 2])
def test_items_go_from_engine_to_engine(connector: ModuleType, workers: int) -> None:
    encode = FakeEngine(connector, config("encode", "ec_producer", workers))
    prefill = FakeEngine(connector, config("prefill", "ec_consumer", 3 - workers))
    one = request("r", ITEMS)
    encode.step(one, encodes=True)
    kept, params = encode.scheduler.request_finished(one)
    assert not kept, "blocks of a request wait for no items"
    assert params["a"]["item_indices"] == [0]
    asked = replace(one, ec_transfer_params=params, request_id="s")

    def there() -> bool:
        prefill.step()
        return bool(prefill.scheduler.ensure_cache_available(asked, 0))

    until(there)
    assert all(map(prefill.scheduler.has_cache_item, ITEMS))
    for index in range(len(ITEMS)):
        prefill.scheduler.update_state_after_alloc(asked, index)
    prefill.step(asked)
    for cache in prefill.caches:
        assert all(torch.equal(cache[hash], content(hash, rows)) for hash, rows in ITEMS.items())
    for index in range(len(ITEMS)):
        prefill.scheduler.update_state_after_free(asked, index)
    assert prefill.scheduler.request_finished(asked) == (False, None)
    assert prefill.scheduler.take_unavailable_requests() == set()
    encode.close()
    prefill.close()


def test_an_engine_whose_rows_are_of_another_width_does_not_start(connector: ModuleType) -> None:
    with pytest.raises(ConnectorError, match="the engine has 99 of image elements, the layout 16") as error:
        connector.KvplanECConnector(config("e", "ec_producer", widths={"image": 99}), Role.SCHEDULER)
    assert error.value.code == "I005"


def test_a_release_without_what_it_takes_is_refused(connector: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(FakeBase, "ensure_cache_available")
    with pytest.raises(ConnectorError, match="has no ensure_cache_available for items") as error:
        connector.KvplanECConnector(config("e", "ec_both"), Role.WORKER)
    assert error.value.code == "I011"


@pytest.mark.parametrize("changes", [True, False])
def test_adapters_of_the_encoder_are_refused(connector: ModuleType, changes: bool) -> None:
    about = config("e", "ec_both")
    about.lora_config = SimpleNamespace(enable_tower_connector_lora=changes)
    if not changes:
        assert connector.KvplanECConnector(about, Role.WORKER)
        return
    with pytest.raises(ConnectorError, match="LoRAs for its encoder") as error:
        connector.KvplanECConnector(about, Role.WORKER)
    assert error.value.code == "I012"


def test_a_pool_without_room_for_a_block_is_refused(connector: ModuleType) -> None:
    about = config("e", "ec_both")
    about.ec_transfer_config.ec_buffer_size = 100
    with pytest.raises(ConnectorError, match="no room for a block of rows"):
        connector.KvplanECConnector(about, Role.WORKER)


@pytest.mark.parametrize("key", ["offer", "bidirectional_kv_xfer", "stage_bytes", "fleet_url"])
def test_keys_about_tokens_are_refused(connector: ModuleType, key: str) -> None:
    with pytest.raises(ConnectorError, match=f"ec_connector_extra_config has '{key}'") as error:
        connector.KvplanECConnector(config("e", "ec_both", 1, None, **{key: "x"}), Role.WORKER)
    assert error.value.code == "I001"


def test_where_it_answers_other_machines(connector: ModuleType) -> None:
    """Behind no port of the connector for keys and values, and one for each engine of a deployment."""
    about = config("e", "ec_both")
    config_read = connector.read_config(
        {"host": "10.0.0.1", "insecure": True}, {}, place=connector.PLACE, unread=connector.UNREAD, port=connector.PORT
    )
    about.parallel_config.data_parallel_index = 2
    engine = connector.encoder_engine(about, config_read, "weights")
    assert (engine.port, engine.number, engine.memory) == (7500, 2, "e.i.2")
