"""Every shipped model says what is known of it: layers, heads, sizes, windows, states, drafts; and it binds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from math import prod

import pytest
from click.testing import CliRunner
from tests.layouts.facts import COMPRESSED, FACTS, KINDS, TYPES, Expected, Fact, drafted, expected
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundCache, BoundSide
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.shards import shard_intervals
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.model import Model
from kvplan.dsl.text.grouped import grouped

SHIPPED = ROOT / "layouts"
PLAIN = [pytest.param(fact, id=fact["hf_id"]) for fact in FACTS if fact["hf_id"] != COMPRESSED]
SIZES = range(1, 17)
# Drafts that were trained for a model and are no part of it.
TRAINED = {"llama-3.1-8b-eagle3", "gpt-oss-20b-eagle3", "kimi-k2-eagle3", "deepseek-v3-eagle3"}
# Models whose published facts describe other pages; tests/compiler has the facts of these.
OF_BLOCKS = {"llada2.0-mini", "qwen3-8b-dflash", "qwen3-8b-dspark"}
# Outputs of encoders; test_encoder.py has their facts.
OF_ITEMS = {"qwen3-vl-2b-encoder", "qwen3-vl-32b-encoder"}


@cache
def library() -> Library:
    return load()


@cache
def by_page() -> dict[str, str]:
    """Models by the checkpoint that their file refers to."""
    found = {library().model(name).doc_ref: name for name in library().models}
    return {ref.removeprefix("https://huggingface.co/"): name for ref, name in found.items()}


def model(fact: Fact) -> Model:
    return library().model(by_page()[fact["hf_id"]])


def bound(name: str, side: str) -> BoundSide:
    return bind(library(), library().model(name), side)


def own(fact: Fact, side: str = "engine=custom,tp=1") -> tuple[BoundCache, ...]:
    return bound(by_page()[fact["hf_id"]], side).caches


def said(one: BoundCache, wanted: Expected) -> Expected:
    """A bound cache as what is wanted of it: the numbers that are named there."""
    return one.kind, one.layers, {name: one.env[name] for name in wanted[2]}


def test_every_model_is_there_once() -> None:
    assert set(by_page()) >= {fact["hf_id"] for fact in FACTS}
    assert len(by_page()) == len(library().models), "no two models refer to one page"
    assert len(library().models) == len(FACTS) + len(TRAINED | OF_BLOCKS | OF_ITEMS)


def test_shipped_files_have_no_errors() -> None:
    files = [str(path) for path in sorted(SHIPPED.glob("*/*.yaml"))]
    run = CliRunner().invoke(main, ["check", *files])
    assert run.exit_code == 0, run.output


def together(every: Iterable[BoundCache]) -> list[BoundCache]:
    """Caches that store the same and that engines only tell apart, as one."""
    alike = grouped(((one.kind, one.tensors, one.needs), one) for one in every)
    return [replace(of[0], layers=tuple(sorted(n for one in of for n in one.layers))) for of in alike.values()]


@pytest.mark.parametrize("fact", PLAIN)
def test_caches_are_those_known(fact: Fact) -> None:
    wanted = sorted(expected(fact), key=lambda one: (one[0], one[1]))
    found = sorted(together(own(fact)), key=lambda one: (one.kind, one.layers))
    assert [(one.kind, one.layers) for one in found] == [one[:2] for one in wanted]
    assert [said(one, want) for one, want in zip(found, wanted, strict=True)] == wanted


@pytest.mark.parametrize("fact", PLAIN)
def test_a_models_own_numbers(fact: Fact) -> None:
    made = model(fact)
    assert made.layers == fact["num_hidden_layers"]
    assert made.values["dtype"] == TYPES[fact["dtype"]]
    assert made.values.get("query_heads", 0) == fact.get("num_attention_heads", 0)


@pytest.mark.parametrize("fact", PLAIN)
def test_layers_without_caches_have_none(fact: Fact) -> None:
    bare = {layer for what, layers in fact["layers"].items() if what.endswith("_only") for layer in layers}
    shared = range(fact["num_hidden_layers"] - fact.get("kv_shared_layers", 0), fact["num_hidden_layers"])
    assert (set(model(fact).no_cache.mlp), model(fact).no_cache.shared) == (bare, tuple(shared))
    assert not (bare | set(shared)) & {layer for one in own(fact) for layer in one.layers}
    assert set(fact["layers"]) - set(KINDS) <= {"mlp_only", "moe_only", "kv_shared (no cache of own)"}


@pytest.mark.parametrize("fact", PLAIN)
def test_what_is_no_copy_of_a_configuration_is_noted(fact: Fact) -> None:
    copied = fact["confidence"] == "config-file"
    assert copied or model(fact).notes, f"{fact['hf_id']}: {fact['confidence']}"


@pytest.mark.parametrize("fact", PLAIN)
def test_draft_layers_follow_the_models_own(fact: Fact) -> None:
    """Only sides that draft have them, in order of kinds; engines run no more of them than `drafts` says."""
    count, name = sum(fact.get("drafts", {}).values()), by_page()[fact["hf_id"]]
    found = [one for one in own(fact, "engine=custom,tp=1,draft_tokens=1") if one.layers[-1] >= model(fact).layers]
    assert model(fact).drafts == count == fact.get("mtp_layers", 0)
    wanted = sorted(drafted(fact), key=lambda one: one[0])
    assert [
        said(one, want) for one, want in zip(sorted(found, key=lambda one: one.kind), wanted, strict=True)
    ] == wanted
    assert all(one.optional for one in found)
    plain = {one.name for one in bound(name, "engine=custom,tp=1").caches}
    assert plain == {one.name for one in own(fact, "engine=custom,tp=1,draft_tokens=1")} - {one.name for one in found}


@pytest.mark.parametrize("name", sorted(TRAINED))
def test_a_trained_draft_is_shared_out_by_heads(name: str) -> None:
    side = bound(name, "tp=4,draft_tokens=2")
    draft = next(one for one in side.caches if one.name == "draft")
    heads = [shard_intervals(side, draft.tensors[0], worker)["head"] for worker in side.workers]
    assert {b - a for a, b in heads} == {numbers(draft, "heads") // 4}
    assert len(set(heads)) == 4
    latents = [one for one in side.caches if one.kind == "mla"]
    assert all(not tensor.split for one in latents for tensor in one.tensors)
    target = {one.name for one in bound(name.removesuffix("-eagle3"), "tp=4").caches}
    assert {one.name for one in side.caches} == target | {"draft"}


@pytest.mark.parametrize(
    ("name", "prefill", "decode", "skipped"),
    [
        ("kimi-k2-eagle3", "tp=4,draft_tokens=1", "tp=2,draft_tokens=3", ()),
        ("kimi-k2-eagle3", "tp=4", "tp=2,draft_tokens=3", ("draft",)),
        ("gpt-oss-20b-eagle3", "tp=2,draft_tokens=1", "tp=4,draft_tokens=1,order=nhd", ()),
        ("deepseek-v3.2", "tp=2,draft_tokens=1", "tp=4", ("draft", "draft-indexer")),
        ("mimo-v2-flash", "tp=8,draft_tokens=1", "tp=2,pp=2,draft_tokens=1", ()),
    ],
)
def test_drafts_arrive_where_both_sides_draft(name: str, prefill: str, decode: str, skipped: tuple[str, ...]) -> None:
    made = compile_pair(library(), name, prefill, decode)
    assert made.plan.skipped == skipped
    request = sample_request(made.prefill, made.decode, (0, 20), seed=3)
    report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
    assert report.right, report.text()


@pytest.mark.parametrize("fact", PLAIN)
def test_a_worker_holds_what_the_formulas_say(fact: Fact) -> None:
    """Bytes of one layer of every cache on worker 0, for each tensor-parallel size that the default engine runs."""
    legal = 0
    for tp in SIZES:
        try:
            side = bound(by_page()[fact["hf_id"]], f"tp={tp}")
        except Refused:
            continue
        legal += 1
        for one in side.caches:
            assert held(side, one) == formula(one.kind, fact, one, tp), (tp, one.name)
    assert legal, "some size must be legal"


def held(side: BoundSide, one: BoundCache) -> int:
    worker = side.workers[0]
    parts = ((prod(b - a for a, b in shard_intervals(side, t, worker).values()), t) for t in one.tensors)
    return sum(count * tensor.size for count, tensor in parts)


def numbers(one: BoundCache, name: str) -> int:
    value = one.env[name]
    assert isinstance(value, int)
    return value


def formula(kind: str, fact: Fact, one: BoundCache, tp: int) -> int:
    """Bytes that a worker keeps: of a token, or of a state. `one` only says which of a model's attentions is meant."""
    s, size = fact.get("state", {}), 2
    taps = (s.get("conv_kernel", 1) - 1) * size
    ssm = 4 if "float32" in s.get("ssm_dtype", "") and "auto" not in s["ssm_dtype"] else size
    if kind in ("gqa", "cross-attention"):
        return max(1, numbers(one, "heads") // tp) * (numbers(one, "dim") + numbers(one, "dim_v")) * size
    if kind == "mla":
        return int(fact["head_dim_k"]) * size
    if kind == "indexer":
        return int(fact.get("indexer", {}).get("cache_bytes_per_token", fact["head_dim_k"] * size))
    if kind == "mamba1":
        return int(s["intermediate"] // tp * (taps + s["state"] * ssm))
    if kind == "mamba2":
        groups = s["n_groups"] // tp if s["n_groups"] % tp == 0 else 1
        conv = (s["intermediate"] // tp + 2 * groups * s["state"]) * taps
        return int(conv + s["num_heads"] // tp * s["head_dim"] * s["state"] * ssm)
    if kind == "gdn":
        conv = (2 * s["num_k_heads"] * s["head_k_dim"] + s["num_v_heads"] * s["head_v_dim"]) // tp * taps
        return int(conv + s["num_v_heads"] // tp * s["head_v_dim"] * s["head_k_dim"] * ssm)
    if kind == "kda":
        return int(s["conv_dim"] // tp * taps + s["num_heads"] // tp * s["head_dim"] ** 2 * ssm)
    if kind == "linear":
        return int(s["num_heads"] // tp * s["head_dim"] ** 2 * ssm)
    return int(s["conv_dim"] // tp * taps)


def test_a_hybrid_of_latents_has_the_block_that_is_known() -> None:
    fact = next(fact for fact in FACTS if "block" in fact)
    known = fact["block"]
    side = bound(by_page()[fact["hf_id"]], f"tp={known['tp']},block={known['step']}")
    assert {group.tokens for group in side.groups if group.store == "tokens"} == {known["tokens"]}
