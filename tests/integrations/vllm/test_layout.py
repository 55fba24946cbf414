"""A worker's memory is mapped from its registered tensors, and its layout follows from the engine's own settings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.integrations.vllm.requests import held
from tests.paths import FIXTURES
from tests.shares import later

from kvplan.compiler.api import compile_pair, side_of
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.dumps.compare import matched, side_text, worker_of
from kvplan.compiler.dumps.dump import Dump, read_dump
from kvplan.compiler.dumps.expected import pieces
from kvplan.compiler.errors import BadInput
from kvplan.dsl.library import Library, load
from kvplan.fleet.records import EngineRole, decoded, encoded
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.facts import EngineFacts
from kvplan.integrations.shared.served import engine_layout, model_layout, served
from kvplan.integrations.vllm.announcing import engine_record
from kvplan.integrations.vllm.layout import (
    _clearing,
    as_allocated,
    check_needs,
    memory_of,
    worker_layout,
)
from kvplan.integrations.vllm.metadata import GroupName, LoadOrder, WorkerFacts
from kvplan.plan.planes import planes
from kvplan.runtime import Memory, views

DUMPS = sorted((FIXTURES / "dumps").glob("*.json"))
some_dumps = pytest.mark.parametrize("path", [*DUMPS[::2], *later(DUMPS[1::2])], ids=lambda path: path.stem)
BASE = 1 << 20


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


def tensors(dump: Dump) -> dict[str, Memory]:
    """The dump's views as memory at addresses that nobody reads."""
    starts = np.cumsum([BASE, *dump.allocations])
    return {
        layer.name: Memory(
            int(starts[layer.allocation]) + layer.offset,
            1,
            1,
            layer.end - layer.offset,
            allocation=(int(starts[layer.allocation]), dump.allocations[layer.allocation]),
        )
        for layer in dump.layers
    }


@some_dumps
def test_every_plane_lies_where_the_engine_has_its_first_layer(path: Path, library: Library) -> None:
    dump = read_dump(path.read_text())
    bound = bind(library, library.model(dump.layout), side_text(dump, library.engine(dump.engine), ""))
    worker = worker_of(dump, bound)
    side, _ = side_of(bound)
    memory = memory_of(planes(side.workers[worker.number]), matched(dump, pieces(bound, worker)), tensors(dump))
    pool = views(side, worker.number, memory)
    assert set(pool.blocks.values()) == {dump.blocks}
    offsets = {layer.offset for layer in dump.layers}
    begins = {one.base - BASE for one in memory.values()}
    assert min(offsets) in begins
    outside = {plane.name for plane in planes(side.workers[worker.number]) if plane.at}
    assert {one.base - BASE for name, one in memory.items() if name not in outside} <= offsets


@some_dumps
def test_the_block_is_found_in_the_groups_that_were_allocated(path: Path, library: Library) -> None:
    """An engine's configuration may have the smallest block of all groups by then."""
    dump = read_dump(path.read_text())
    engine, model = library.engine(dump.engine), library.model(dump.layout)
    unsaid = replace(dump, side={name: value for name, value in dump.side.items() if name != "block"})
    blocks = [group.tokens for group in dump.groups if group.store == "tokens"]
    _, found, differences = as_allocated(library, model, engine, unsaid, blocks)
    assert not differences
    assert side_of(found)[0].digest == side_of(bind(library, model, side_text(dump, engine, "")))[0].digest


# An engine with real tensors


@dataclass
class FakeSpec:
    """vLLM's description of full attention."""

    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: str = "float32"
    sliding_window: int | None = None


@dataclass
class FakeGroup:
    layer_names: list[str]
    kv_cache_spec: Any


@dataclass
class FakeCaches:
    num_blocks: int
    kv_cache_groups: list[FakeGroup]
    transfer_group_ids: tuple[int, ...] = (0,)
    kv_cache_layout: str = "LBHNC"
    needs_kv_cache_zeroing: bool = False


@dataclass
class FakeEngine:
    """Four layers of four heads of 32 elements, f32, in blocks of 32 tokens, registered as vLLM does on CPUs."""

    heads: int = 4
    blocks: int = 6
    tokens: int = 32
    folder: Path = Path()
    options: dict[str, str] = field(default_factory=lambda: {"order": "LBHNC", "kv_dtype": "float32"})
    names: list[str] = field(default_factory=lambda: [f"model.layers.{n}.self_attn.attn" for n in range(4)])

    @property
    def facts(self) -> EngineFacts:
        mesh = {"tp": 1, "pp": 1, "dcp": 1, "pcp": 1}
        config = str(self.folder / "config.json")
        return EngineFacts("vllm", "0.32.0+cpu", "cpu", config, "float32", mesh, dict.fromkeys(mesh, 0), self.options)

    def registered(self) -> tuple[FakeCaches, dict[str, Any]]:
        torch = pytest.importorskip("torch")
        shape = self.blocks, self.heads, self.tokens, 64
        whole = torch.zeros(4, *shape, dtype=torch.float32)
        group = FakeGroup(self.names, FakeSpec(self.tokens, self.heads, 32))
        return FakeCaches(self.blocks, [group]), dict(zip(self.names, whole, strict=True))


@pytest.fixture
def engine(tmp_path: Path) -> FakeEngine:
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "hidden_size": 256,
        "vocab_size": 512,
        "dtype": "bfloat16",
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    return FakeEngine(folder=tmp_path)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def config(engine: FakeEngine, **more: Any) -> ConnectorConfig:
    """The configuration of an engine that compiles its plans itself."""
    return ConnectorConfig(**more)


def test_a_layout_is_found_compared_and_mapped(engine: FakeEngine) -> None:
    caches, registered = engine.registered()
    layout = worker_layout(config(engine), engine.facts, caches, registered)
    assert (layout.worker, layout.groups) == (0, (GroupName("attention", "tokens"),))
    assert layout.side.key == "engine=vllm-cpu,tp=1,block=32"
    addresses = [tensor.data_ptr() for tensor in registered.values()]
    assert [layout.memory[f"attention.{layer}"].base for layer in range(4)] == addresses
    assert views(layout.side, 0, layout.memory).blocks == {"attention": 6}
    assert layout.settings.keys() == {"elements of attention", "rotary embedding"}


def test_an_engine_that_computes_only_the_last_token_does_not_start_with_a_layout_that_leaves_out_more() -> None:
    library = load()
    check_needs(side_of(bind(library, library.model("llama-3.1-8b"), "tp=1"))[0])
    with pytest.raises(
        ConnectorError, match=r"does not compute what `needs: \{whole: …\}` of attention leaves out"
    ) as caught:
        check_needs(side_of(bind(library, library.model("llada2.0-mini"), "tp=1"))[0])
    assert caught.value.code == "I012"


def test_what_an_engine_says_of_a_model_of_a_family_is_sent(engine: FakeEngine) -> None:
    """The record of an engine, as its cards, is msgspec's, which takes plain texts alone."""
    facts = replace(engine.facts, config=str(FIXTURES / "configs" / "deepseek-v3.json"))
    layouts, name, _ = model_layout(config(engine), facts)
    bound = bind(layouts, layouts.model(name), "tp=1")
    side, digest = side_of(bound)
    worker = WorkerFacts(0, "tcp://10.0.0.1:7600", (), "", bound.model, digest, side.digest, side.key)
    record = engine_record("e", "e.1", EngineRole.BOTH, [worker], 0)
    assert decoded(encoded(record), "e").model == "deepseek-v3"


DRAFTED = """kvplan: 1
model: drafted
title: Three layers and a draft of one
dtype: f32
query_heads: 8
layers: 3
drafts: 1
caches:
  attention: {kind: gqa, layers: all, heads: 4, dim: 32}
  draft: {kind: gqa, layers: drafts, heads: 4, dim: 32, when: draft_tokens > 0, optional: true}
"""


@pytest.mark.parametrize("draft", ["model.layers.3", "mtp.layers.0", "draft_model.model.layers.0"])
def test_layers_of_drafts_follow_the_model_s_however_they_are_named(engine: FakeEngine, draft: str) -> None:
    engine.names[3] = f"{draft}.self_attn.attn"
    engine.options["draft_tokens"] = "2"
    (engine.folder / "drafted.yaml").write_text(DRAFTED)
    caches, registered = engine.registered()
    given = config(engine, layout=str(engine.folder / "drafted.yaml"))
    layout = worker_layout(given, engine.facts, caches, registered)
    planes = ["attention.0", "attention.1", "attention.2", "draft.3"]
    assert [layout.memory[name].base for name in planes] == [tensor.data_ptr() for tensor in registered.values()]


@pytest.mark.parametrize(("said", "help"), [({"draft_tokens": "2"}, "`drafts: N`"), ({}, '"options"')])
def test_layers_that_no_file_has_may_be_those_of_drafts_where_the_engine_drafts(
    engine: FakeEngine, said: dict[str, str], help: str
) -> None:
    engine.options |= said
    config_json = json.loads((engine.folder / "config.json").read_text()) | {"num_hidden_layers": 3}
    (engine.folder / "config.json").write_text(json.dumps(config_json))
    with pytest.raises(ConnectorError, match=r"the layout none \(model.layers.3.self_attn.attn") as caught:
        worker_layout(config(engine), engine.facts, *engine.registered())
    assert caught.value.code == "I005"
    assert help in str(caught.value)


def test_what_a_load_leaves_of_its_last_block_is_zeroed_where_the_engine_relies_on_it(engine: FakeEngine) -> None:
    caches, registered = engine.registered()
    caches.needs_kv_cache_zeroing = True
    for tensor in registered.values():
        tensor.fill_(1)
    clearing = worker_layout(config(engine), engine.facts, caches, registered).clearing
    assert clearing is not None
    clearing.clear(LoadOrder("r", (32, 70), ((5, 4, 2, 3, 0),), held(70)))
    for tensor in registered.values():
        assert [bool(tensor[block].any()) for block in range(6)] == [True, True, False, False, True, True]


@pytest.mark.parametrize(
    ("window", "tokens", "left"),
    [
        (None, (0, 150), {1, 2, 3}),  # the last block has an end that is not written, and one lies behind it
        (48, (0, 150), {1}),  # of a window the first block has a front, too
        (48, (96, 150), {1, 2}),  # what is here stays
        (48, (100, 150), {1, 2, 3}),
    ],
)
def test_what_a_load_leaves_of_a_window_s_blocks_is_zeroed(
    engine: FakeEngine, window: int | None, tokens: tuple[int, int], left: set[int]
) -> None:
    caches, registered = engine.registered()
    caches.kv_cache_groups[0].kv_cache_spec.sliding_window = window
    layout = worker_layout(config(engine), engine.facts, *engine.registered())
    tensor = registered["model.layers.0.self_attn.attn"]
    tensor.fill_(1)
    clearing = _clearing(layout.side, caches, layout.groups, registered)
    clearing.clear(LoadOrder("r", tokens, ((0, 0, 2, 3, 4, 5),), held(150)))
    assert {block for block in range(6) if tensor[block].any()} - {0} == left


@pytest.mark.parametrize(("said", "chunk"), [({}, 32), ({"interleave": "1"}, 1), ({"interleave": "16"}, 16)])
def test_tokens_are_shared_out_as_the_engine_says(engine: FakeEngine, said: dict[str, str], chunk: int) -> None:
    """The memory's shape does not show it: the engine's own interleave has to count."""
    engine.heads = 1
    caches, registered = engine.registered()
    mesh = {**engine.facts.mesh, "tp": 8, "dcp": 2}
    facts = replace(engine.facts, platform="cuda", mesh=mesh, options=engine.options | said)
    side = worker_layout(config(engine), facts, caches, registered).side
    assert [(group.shards, group.chunk) for group in side.groups] == [(2, chunk)]


def test_the_side_is_the_one_that_plans_have(engine: FakeEngine) -> None:
    caches, registered = engine.registered()
    layout = worker_layout(config(engine), engine.facts, caches, registered)
    assert layout.cache is not None
    found = load((), (layout.cache / "layouts",))
    plan = compile_pair(found, layout.model, layout.side.key, layout.side.key).plan
    assert plan.prefill == layout.side
    assert plan.model_digest == layout.model_digest


def test_without_a_layout_file_the_command_that_makes_one_is_told(engine: FakeEngine) -> None:
    with pytest.raises(ConnectorError, match=r"I004.*kvplan new .*config\.json -o") as caught:
        worker_layout(config(engine, plans=Path("plans")), engine.facts, *engine.registered())
    assert caught.value.code == "I004"


def test_the_command_knows_the_files_of_ones_own(engine: FakeEngine, tmp_path: Path) -> None:
    with pytest.raises(ConnectorError, match=rf"--layouts {tmp_path}"):
        worker_layout(config(engine, plans=Path("plans"), layouts=tmp_path), engine.facts, *engine.registered())


def test_a_layout_that_differs_by_one_number_is_told_with_both_values(engine: FakeEngine) -> None:
    caches, registered = engine.registered()
    wrong = json.loads((engine.folder / "config.json").read_text()) | {"num_key_value_heads": 2}
    (engine.folder / "config.json").write_text(json.dumps(wrong))
    with pytest.raises(ConnectorError, match=r"heads: the engine has 4, the layout 2 \(model.layers.0") as caught:
        worker_layout(config(engine), engine.facts, caches, registered)
    assert caught.value.code == "I005"


def test_options_of_the_user_count_before_what_the_engine_says(engine: FakeEngine) -> None:
    with pytest.raises(ConnectorError, match=r"tokens of a block: the engine has 32, the layout 64"):
        worker_layout(config(engine, options={"block": "64"}), engine.facts, *engine.registered())


def test_the_engine_s_file_is_that_for_platform_and_release(engine: FakeEngine, library: Library) -> None:
    facts = engine.facts
    assert engine_layout(library, "", facts).name == "vllm-cpu"
    assert engine_layout(library, "", replace(facts, platform="cuda", version="0.33.0")).name == "vllm"
    assert engine_layout(library, "", replace(facts, platform="cuda", version="0.24.0")).name == "vllm-legacy"
    assert engine_layout(library, "custom", facts).name == "custom"


@pytest.mark.parametrize("change", [{"platform": "tpu"}, {"version": "0.10.0"}, {"name": "other"}, {"version": "no"}])
def test_an_engine_that_no_file_is_for(change: dict[str, Any], engine: FakeEngine, library: Library) -> None:
    with pytest.raises(BadInput, match="no engine's file is for") as caught:
        engine_layout(library, "", replace(engine.facts, **change))
    assert caught.value.code == "I003"


def test_a_configuration_as_it_is_served(engine: FakeEngine) -> None:
    given = {"dtype": "bfloat16", "text_config": {"torch_dtype": "bfloat16", "layers": 2}, "layers": 3}
    wanted = {"dtype": "float32", "text_config": {"torch_dtype": "float32", "layers": 2}, "layers": 3}
    assert served(given, engine.facts) == wanted
    assert served(given, replace(engine.facts, state_dtype="float32")) == {**wanted, "state_dtype": "float32"}
