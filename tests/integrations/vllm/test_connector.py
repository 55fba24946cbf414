"""What the engine's connector makes of its configuration, and when: vLLM's own modules are not needed for that."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.integrations.vllm.requests import facts

from kvplan.integrations.vllm.errors import ConnectorError

NAME = "kvplan.integrations.vllm.connector"
BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
TAKEN = (
    "KVConnectorHandshakeMetadata",
    "KVConnectorMetadata",
    "KVConnectorRole",
    "KVConnectorTransferResults",
    "SupportsHMA",
)


class FakeBase:
    """As much of KVConnectorBase_V1 as is used."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        self._vllm_config, self._kv_cache_config = vllm_config, kv_cache_config


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


@dataclass
class FakeWorkers:
    """Workers that say when they were made and closed, or that cannot be made."""

    said: list[str] = field(default_factory=list)
    broken: bool = False

    def make(self, *_: Any) -> tuple[Any, Any]:
        if self.broken:
            raise ValueError("no memory")
        number = sum(word.startswith("made") for word in self.said)
        self.said.append(f"made {number}")
        words = {"close": "closed", "suspend": "suspended", "resume": "resumed"}
        says = {name: partial(self.said.append, f"{word} {number}") for name, word in words.items()}
        return SimpleNamespace(**says), facts(number)


@pytest.fixture
def workers() -> FakeWorkers:
    return FakeWorkers()


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch, workers: FakeWorkers) -> Iterator[ModuleType]:
    stubs = {
        BASE: module(BASE, KVConnectorBase_V1=FakeBase, **{name: type(name, (), {}) for name in TAKEN}),
        "kvplan.integrations.vllm.facts": module("facts", engine_facts=lambda *_: None),
        "kvplan.integrations.vllm.stats": module("stats", KvplanPromMetrics=object, KvplanStats=object),
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    made = importlib.import_module(NAME)
    monkeypatch.setattr(made, "worker_layout", lambda *_: None)
    monkeypatch.setattr(made, "connector_worker", workers.make)
    yield made
    del sys.modules[NAME]


def engine(connector: ModuleType, *, decodes: bool = True, sleeps: bool = False, **more: Any) -> Any:
    extra = {"plans": "plans", "insecure": True, **more}
    transfer = SimpleNamespace(
        kv_connector_extra_config=extra, engine_id="e", is_kv_producer=True, is_kv_consumer=decodes
    )
    parallel = SimpleNamespace(data_parallel_index=0, world_size=1)
    model = SimpleNamespace(enable_sleep_mode=sleeps)
    config = SimpleNamespace(kv_transfer_config=transfer, instance_id="i", parallel_config=parallel, model_config=model)
    caches = SimpleNamespace(kv_cache_groups=[], transfer_group_ids=())
    return connector.KvplanConnector(config, None, caches)


def test_memory_that_is_registered_anew_has_workers_of_its_own(connector: ModuleType, workers: FakeWorkers) -> None:
    """The first ones have the port, and memory that may be gone."""
    made = engine(connector)
    made.register_kv_caches({})
    made.register_kv_caches({})
    assert workers.said == ["made 0", "closed 0", "made 1"]
    assert made.get_handshake_metadata().facts == facts(1)
    made.shutdown()
    assert workers.said[3:] == ["closed 1"]


def test_workers_are_closed_once(connector: ModuleType, workers: FakeWorkers) -> None:
    made = engine(connector)
    made.register_kv_caches({})
    workers.broken = True
    with pytest.raises(ValueError, match="no memory"):
        made.register_kv_caches({})
    made.shutdown()
    assert workers.said == ["made 0", "closed 0"]
    assert made.get_handshake_metadata() is None


def test_an_engine_that_tells_nobody_when_it_sleeps_is_refused(connector: ModuleType, workers: FakeWorkers) -> None:
    """Its memory would be others' while peers still have it registered."""
    with pytest.raises(ConnectorError, match="I007"):
        engine(connector, sleeps=True).register_kv_caches({})
    assert workers.said == []


def test_workers_are_suspended_while_the_engine_sleeps(
    connector: ModuleType, workers: FakeWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeBase, "restore_kv_caches", None, raising=False)
    made = engine(connector, sleeps=True)
    made.unregister_kv_caches()
    made.register_kv_caches({})
    made.unregister_kv_caches()
    made.restore_kv_caches()
    assert workers.said == ["made 0", "suspended 0", "resumed 0"]


@pytest.mark.parametrize("order", ["LBNHC", None])
def test_an_order_that_is_said_is_asked_for(connector: ModuleType, order: str | None) -> None:
    config = engine(connector, options={"order": order} if order else {})._vllm_config
    assert connector.KvplanConnector.get_required_kvcache_layout(config) == order


@pytest.mark.parametrize("decodes", [True, False])
def test_its_scheduler_loads_where_the_engine_decodes(connector: ModuleType, decodes: bool) -> None:
    scheduler = engine(connector, decodes=decodes, peers=["10.0.0.2"])._scheduler
    assert (scheduler.decodes, scheduler.peers) == (decodes, ("10.0.0.2",))
