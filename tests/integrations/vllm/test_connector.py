"""The engine's connector turns its configuration into workers at the right time: the tests need no module of vLLM."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tests.integrations.vllm.requests import facts

from kvplan.fleet.records import EngineRecord
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.vllm import announcing
from kvplan.integrations.vllm.loads import StepResults
from kvplan.integrations.vllm.metadata import PromptChunk, StepOrders
from kvplan.integrations.vllm.setup import EngineRoles

NAME = "kvplan.integrations.vllm.connector"
BASE = "vllm.distributed.kv_transfer.kv_connector.v1.base"
TAKEN = (
    "KVConnectorHandshakeMetadata",
    "KVConnectorMetadata",
    "KVConnectorRole",
    "SupportsHMA",
)


class FakeResults(NamedTuple):
    """Ended transfers, by vLLM's names."""

    finished_sending: frozenset[str]
    finished_recving: frozenset[str]
    failed_recving: frozenset[str]


class FakeBase:
    """The part of KVConnectorBase_V1 that the connector uses."""

    def bind_connector_metadata(self, metadata: Any) -> None:
        self.metadata = metadata

    def _get_connector_metadata(self) -> Any:
        return self.metadata

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        self._vllm_config, self._kv_cache_config = vllm_config, kv_cache_config


def module(name: str, **names: Any) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(names)
    return made


@dataclass
class FakeWorker:
    """A worker that records its calls."""

    said: list[str]
    number: int
    busy: bool = False
    measured: bool = False

    def close(self) -> None:
        self.said.append(f"closed {self.number}")

    def suspend(self) -> None:
        self.said.append(f"suspended {self.number}")

    def resume(self) -> None:
        self.said.append(f"resumed {self.number}")

    def hold(self, orders: StepOrders) -> None:
        self.said.append("hold")

    def computed(self, layer: str = "all") -> None:
        self.said.append(f"computed {layer}")

    def load(self, orders: StepOrders) -> None:
        self.said.append("load")

    def ended(self, *, idle: bool) -> StepResults:
        self.said.append(f"ended {idle}")
        return StepResults(received={"r"})

    def measures(self) -> str:
        self.measured = False
        return "measures"


@dataclass
class FakeWorkers:
    """Workers that record when they are made and closed, or that cannot be made."""

    said: list[str] = field(default_factory=list)
    revisions: list[str] = field(default_factory=list)
    drafts: bool = False
    broken: bool = False
    before: list[str] = field(default_factory=list)

    def make(self, config: Any, layout: Any, roles: EngineRoles) -> tuple[Any, Any]:
        if self.broken:
            raise ValueError("no memory")
        self.revisions.append(roles.revision)
        self.drafts = roles.drafts
        self.before.append(roles.before)
        number = sum(word.startswith("made") for word in self.said)
        self.said.append(f"made {number}")
        return FakeWorker(self.said, number), facts(number)


@pytest.fixture
def workers() -> FakeWorkers:
    return FakeWorkers()


@pytest.fixture
def connector(monkeypatch: pytest.MonkeyPatch, workers: FakeWorkers) -> Iterator[ModuleType]:
    taken, said = {name: type(name, (), {}) for name in TAKEN}, SimpleNamespace(config="config.json")
    stubs = {
        BASE: module(BASE, KVConnectorBase_V1=FakeBase, KVConnectorTransferResults=FakeResults, **taken),
        "kvplan.integrations.vllm.facts": module("facts", engine_facts=lambda *_: said, adapter_folder=None),
        "kvplan.integrations.vllm.stats": module("stats", KvplanPromMetrics=object, KvplanStats=str),
    }
    for name, stub in stubs.items():
        monkeypatch.setitem(sys.modules, name, stub)
    made = importlib.import_module(NAME)
    monkeypatch.setattr(made, "worker_layout", lambda *_: SimpleNamespace(side=SimpleNamespace(needs=())))
    monkeypatch.setattr(made, "connector_worker", workers.make)
    monkeypatch.setattr(made, "checkpoint_revision", lambda _, config: f"of {config}")
    yield made
    del sys.modules[NAME]


def engine(
    connector: ModuleType,
    *,
    decodes: bool = True,
    sleeps: bool = False,
    splits: bool = False,
    drafts: object = None,
    **more: Any,
) -> Any:
    extra = {"plans": "plans", "insecure": True, **more}
    transfer = SimpleNamespace(
        kv_connector_extra_config=extra,
        engine_id="e",
        is_kv_producer=True,
        is_kv_consumer=decodes,
        kv_role="kv_both" if decodes else "kv_producer",
    )
    parallel = SimpleNamespace(data_parallel_index=0, world_size=1, use_ubatching=splits)
    model = SimpleNamespace(enable_sleep_mode=sleeps)
    config = SimpleNamespace(
        kv_transfer_config=transfer,
        instance_id="i",
        parallel_config=parallel,
        model_config=model,
        speculative_config=drafts,
    )
    caches = SimpleNamespace(kv_cache_groups=[], transfer_group_ids=(), num_blocks=512)
    return connector.KvplanConnector(config, None, caches)


def test_memory_that_is_registered_anew_has_workers_of_its_own(connector: ModuleType, workers: FakeWorkers) -> None:
    """The first workers have the port, and memory that may no longer exist."""
    made = engine(connector)
    made.register_kv_caches({})
    made.register_kv_caches({})
    assert workers.said == ["made 0", "closed 0", "made 1"]
    assert made.get_handshake_metadata().facts == facts(1)
    made.shutdown()
    assert workers.said[3:] == ["closed 1"]


def test_engines_say_which_weights_they_serve(connector: ModuleType, workers: FakeWorkers) -> None:
    """The connector uses a configured revision, and finds one otherwise."""
    engine(connector).register_kv_caches({})
    engine(connector, revision="9f2e1c7").register_kv_caches({})
    assert workers.revisions == ["of config.json", "9f2e1c7"]


def test_what_is_decoded_is_kept_for_the_next_turn_where_that_is_said(connector: ModuleType) -> None:
    said: dict[str, Any] = {"bidirectional_kv_xfer": True, "lease_s": 7.0}
    assert engine(connector)._scheduler.next_turn == 0
    assert engine(connector, **said)._scheduler.next_turn == 7
    with pytest.raises(ConnectorError, match="kv_role is kv_producer") as refused:
        engine(connector, decodes=False, **said)
    assert refused.value.code == "I002"


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
    """Its memory would have other owners while peers still have it registered."""
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


def test_its_workers_go_on_at_the_address_that_peers_were_told(connector: ModuleType, workers: FakeWorkers) -> None:
    """Registering memory again keeps the port: a free one would be different."""
    made = engine(connector)
    for _ in range(3):
        made.register_kv_caches({})
    assert workers.before == ["", facts(0).address, facts(1).address]


def test_events_are_in_the_engine_s_log_unless_somebody_takes_them(connector: ModuleType) -> None:
    ours, theirs, root = (logging.getLogger(name) for name in ("kvplan", "vllm", None))
    handlers, mine = root.handlers, logging.NullHandler()
    try:
        root.handlers, theirs.handlers = [], [mine]
        connector.share_log()
        assert ours.handlers == [mine]
        ours.handlers, root.handlers = [], [logging.NullHandler()]
        connector.share_log()
        assert ours.handlers == []
    finally:
        ours.handlers, theirs.handlers, root.handlers = [], [], handlers
        ours.setLevel(logging.NOTSET)


@pytest.mark.parametrize("decodes", [True, False])
def test_its_scheduler_loads_where_the_engine_decodes(connector: ModuleType, decodes: bool) -> None:
    scheduler = engine(connector, decodes=decodes, peers=["10.0.0.2"])._scheduler
    assert scheduler.decodes == decodes
    assert "none of peers" in scheduler.refuses("10.0.0.1")


@pytest.mark.parametrize(
    ("more", "offer"),
    [
        ({}, "layers"),
        ({"offer": "end"}, "end"),
        ({"offer": "steps"}, "steps"),
        ({"splits": True}, "steps"),  # a batch in two halves says twice that a layer is computed
        ({"splits": True, "offer": "end"}, "end"),
        ({"drafts": object()}, "end"),
    ],
)
def test_how_early_prompts_are_offered(connector: ModuleType, more: dict[str, Any], offer: str) -> None:
    made = engine(connector, **more)
    assert made._offer() == offer
    assert made._scheduler.offers == (offer != "end")


def test_an_engine_that_drafts_says_so_to_its_workers(connector: ModuleType, workers: FakeWorkers) -> None:
    for drafts in (object(), None):
        engine(connector, drafts=drafts).register_kv_caches({})
        assert workers.drafts == (drafts is not None)


@dataclass
class FakeFleet:
    """A fleet that keeps its announcements."""

    told: list[tuple[EngineRecord, int | None]] = field(default_factory=list)
    closed: int = 0

    def announce(self, record: EngineRecord, free: Callable[[], int] | None) -> None:
        self.told.append((record, free and free()))

    def close(self, seconds: float) -> None:
        self.closed += 1


@pytest.mark.parametrize(("decodes", "role"), [(True, "both"), (False, "prefill")])
def test_its_scheduler_announces_the_engine_once_all_workers_are_there(
    connector: ModuleType, decodes: bool, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No worker does, because its connector has no facts of other workers."""
    fleet = FakeFleet()
    monkeypatch.setattr(announcing, "EtcdFleet", lambda *_, **__: fleet)
    worker = engine(connector, decodes=decodes, fleet_url="http://etcd:2379")
    worker.register_kv_caches({})
    scheduler = engine(connector, decodes=decodes, fleet_url="http://etcd:2379")
    scheduler.bind_gpu_block_pool(SimpleNamespace(get_num_free_blocks=lambda: 511))
    assert fleet.told == []
    about: dict[str, Any] = {"model": "m", "model_digest": "0", "side": "s", "side_key": "tp=2"}
    scheduler.set_xfer_handshake_metadata_pp_aware(
        {(0, rank): connector.FactsMetadata(replace(facts(rank), **about)) for rank in (1, 0)}
    )
    [(record, free)] = fleet.told
    assert (record.name, record.run, record.role, record.free_blocks, free) == ("e", "e.i", role, 511, 511)
    assert record.addresses == ("tcp://127.0.0.1:7600", "tcp://127.0.0.1:7601")
    closed = fleet.closed
    scheduler.shutdown()
    assert fleet.closed == closed + 1


def test_the_handshake_of_another_connector_is_an_error(connector: ModuleType) -> None:
    """vLLM's MultiConnector has one for all of its connectors."""
    with pytest.raises(ConnectorError, match="I010"):
        engine(connector).set_xfer_handshake_metadata_pp_aware({(0, 0): object()})


def test_it_has_a_second_name_in_a_module_of_its_own(connector: ModuleType) -> None:
    """The log and MultiConnector's statistics keep the first name, because vLLM looks them up by the class's name."""
    module = importlib.import_module("kvplan.integrations.vllm.as_nixl")
    del sys.modules[module.__name__]
    assert module.NixlConnector is connector.KvplanConnector
    assert module.NixlConnector.__name__ == "KvplanConnector"


def test_layers_are_told_of_in_steps_that_offer_something(connector: ModuleType, workers: FakeWorkers) -> None:
    made = engine(connector)
    made.register_kv_caches({})
    workers.said.clear()
    chunk = PromptChunk("t", (0, 8), 39, ((1,),))
    empty = made.build_connector_meta(SimpleNamespace(total_num_scheduled_tokens=1))
    for metadata in (empty, connector.OrdersMetadata(StepOrders(chunks=(chunk,))), empty):
        made.bind_connector_metadata(metadata)
        made.save_kv_layer("layers.0", None, None)
        made.start_load_kv(None)
        made.wait_for_save()
    assert workers.said == ["hold", "computed layers.0", "load", "computed all"]


def test_a_step_that_orders_nothing_reaches_no_worker(connector: ModuleType, workers: FakeWorkers) -> None:
    """The orders of a step are made once, for all workers."""
    made = engine(connector)
    made.register_kv_caches({})
    workers.said.clear()
    computing, idle = (SimpleNamespace(total_num_scheduled_tokens=tokens) for tokens in (1, 0))
    assert made.build_connector_meta(computing) is made.build_connector_meta(computing)
    assert [made.build_connector_meta(step).idle for step in (computing, idle)] == [False, True]
    made.bind_connector_metadata(made.build_connector_meta(computing))
    made.start_load_kv(None)
    assert made.get_transfer_results(set()) == FakeResults(frozenset(), frozenset(), frozenset())
    assert made.get_kv_connector_stats() is None
    assert workers.said == []


def test_a_worker_is_asked_from_its_orders_on_until_nothing_is_under_way(
    connector: ModuleType, workers: FakeWorkers
) -> None:
    made = engine(connector)
    made.register_kv_caches({})
    worker, empty = made._worker, made.build_connector_meta(SimpleNamespace(total_num_scheduled_tokens=0))
    worker.busy = worker.measured = True
    workers.said.clear()
    for metadata in (empty, connector.OrdersMetadata(StepOrders(cancels=("r",))), empty):
        made.bind_connector_metadata(metadata)
        made.start_load_kv(None)
        made.get_transfer_results(set())
    assert workers.said == ["hold", "load", "ended False", "ended True"]
    worker.busy = False
    assert made.get_transfer_results(set()).finished_recving == {"r"}
    assert made.get_transfer_results(set()).finished_recving == frozenset()
    assert [made.get_kv_connector_stats(), made.get_kv_connector_stats()] == ["measures", None]
