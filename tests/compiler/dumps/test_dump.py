"""Dumps as values, what a layout says in their words, and how the two are matched."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.paths import FIXTURES

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.dumps.compare import compare, matched, side_text, worker_of
from kvplan.compiler.dumps.dump import BLOCK, Dump, number_in, read_dump
from kvplan.compiler.dumps.expected import APART, pieces
from kvplan.compiler.errors import BadInput
from kvplan.dsl.library import Library, load

DUMPS = FIXTURES / "dumps"


@pytest.fixture(scope="module")
def library() -> Library:
    return load((), ())


def read(name: str) -> Dump:
    return read_dump((DUMPS / f"{name}.json").read_text())


def bound(library: Library, dump: Dump, given: str = "") -> BoundSide:
    text = side_text(dump, library.engine(dump.engine), given)
    return bind(library, library.model(dump.layout), text)


@pytest.mark.parametrize(
    ("name", "number"),
    [("model.layers.17.self_attn.attn", 17), ("0.mixer", 0), ("a.3.b.4", 3), ("layer3.x", None), ("", None), ("5", 5)],
)
def test_the_number_in_a_name_stands_alone(name: str, number: int | None) -> None:
    assert number_in(name) == number


def test_a_view_ends_behind_its_last_element() -> None:
    dump = read("qwen3-0.6b__tp2_blnhc")
    assert max(layer.end for layer in dump.layers) == dump.allocations[0]
    assert {layer.bytes * layer.counts[BLOCK] * len(dump.layers) for layer in dump.layers} == {dump.allocations[0]}


def test_layers_and_pieces_are_matched_one_to_one(library: Library) -> None:
    for name in ("falcon-h1-34b__tp2", "deepseek-v3.2__tp2_bf16", "whisper-large-v3__tp1"):
        dump = read(name)
        side = bound(library, dump)
        found = pieces(side, worker_of(dump, side))
        pairs = matched(dump, found)
        assert len(pairs) == len(found) == len(dump.layers)
        assert len({(piece.name, piece.layer) for _, piece in pairs}) == len(pairs)
        assert all(layer.layer == piece.layer for layer, piece in pairs)


def test_matching_takes_what_fits_and_not_the_order(library: Library) -> None:
    dump = read("deepseek-v3.2__tp2_bf16")
    side = bound(library, dump)
    found = pieces(side, worker_of(dump, side))
    straight = {layer.name: piece.name for layer, piece in matched(dump, found)}
    turned = replace(dump, layers=dump.layers[::-1])
    assert {layer.name: piece.name for layer, piece in matched(turned, found[::-1])} == straight
    assert len(set(straight.values())) == 2


def test_heads_outside_the_block_are_said(library: Library) -> None:
    dump = read("llama-3.1-8b__tp2_lhbnc_block48")
    side = bound(library, dump)
    assert {p.facts["bytes between heads"] for p in pieces(side, worker_of(dump, side))} == {APART}
    found = {d.what: (d.dump, d.layout) for d in compare(dump, bound(library, dump, "order=LBHNC"))}
    assert found["bytes between heads"][0] == APART
    assert int(found["bytes between heads"][1]) > 0


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("llama-3.1-8b__tp1", "order=LBNHC"),
        ("llama-3.1-8b__tp1", "order=BLHNC"),
        ("llama-3.1-8b__tp1", "order=BHLNC"),
        ("llama-3.1-8b__tp1", "order=LHBNC"),
        ("llama-3.1-8b__tp1", "kv_dtype=fp8"),
        ("llama-3.1-8b__tp1", "block=32"),
        ("llama-3.1-8b__tp2_block192_sizes", "kernel_sizes=16+32"),
        ("gemma-3-27b__tp1", "groups=by_cache"),
        ("nemotron-3-nano-30b__tp4", "tp=8"),
        ("nemotron-3-nano-30b__tp1_draft2", "draft_tokens=1"),
        ("nemotron-3-nano-30b__tp1_fp8_sizes", "kernel_sizes=16+48"),
    ],
)
def test_another_side_is_another_layout(library: Library, name: str, given: str) -> None:
    dump = read(name)
    assert compare(dump, bound(library, dump)) == ()
    assert compare(dump, bound(library, dump, given))


def test_a_mesh_axis_of_size_one_may_be_unknown(library: Library) -> None:
    dump = read("llama-3.1-8b__tp1")
    engine = library.engine(dump.engine)
    assert side_text(replace(dump, mesh={**dump.mesh, "ep": 1}), engine, "") == side_text(dump, engine, "")
    with pytest.raises(BadInput) as raised:
        side_text(replace(dump, mesh={**dump.mesh, "ep": 2}), engine, "")
    assert raised.value.code == "D010"


def test_a_stage_of_a_pipeline_has_its_layers_only(library: Library) -> None:
    whole = read("llama-3.1-8b__tp1")
    names = tuple(layer.name for layer in whole.layers[16:])
    group = replace(whole.groups[0], layers=names)
    last = replace(whole, layers=whole.layers[16:], groups=(group,), mesh={"pp": 2}, rank={"pp": 1})
    assert compare(last, bound(library, last)) == ()
    first = replace(last, rank={"pp": 0})
    assert {d.layers[0] for d in compare(first, bound(library, first)) if d.layout == "none"} >= {names[0]}


def apart(stride: int) -> str:
    """A dump of an engine that keeps keys and values in tensors of their own, without a dimension of blocks."""
    names = [f"model.layers.{layer}.attn.{part}" for layer in range(32) for part in "kv"]
    view = {"group": 0, "offset": 0, "shape": [8, 128, 4, 128], "strides": [131072, 1024, 256, 2], "dtype": "bf16"}
    layers = [{**view, "name": name, "allocation": number} for number, name in enumerate(names)]
    layers[5] = {**layers[5], "strides": [131072, stride, 256, 2]}
    found = {
        "kvplan-dump": 1, "engine": {"name": "gaudi"}, "model": {"layout": "llama-3.1-8b"}, "side": {},
        "mesh": {"tp": 2}, "rank": {"tp": 1}, "blocks": 8, "allocations": [1 << 21] * len(names),
        "axes": ["block", "token", "head", "content"],
        "groups": [{"store": "tokens", "tokens": 128, "layers": names}], "layers": layers,
    }  # fmt: skip
    return json.dumps(found)


def test_keys_and_values_apart_are_two_views_of_a_layer(library: Library) -> None:
    dump = read_dump(apart(1024))
    assert compare(dump, bound(library, dump)) == ()
    other = read_dump(apart(1032))
    found = compare(other, bound(library, other))
    assert [(d.what, d.dump, d.layout, d.layers) for d in found] == [
        ("bytes between tokens", "1032", "1024", ("model.layers.2.attn.v",))
    ]


OWN = "kvplan: 1\nengine: mutant\nextends: vllm\ntitle: Mutant\nown:\n  {kind}:\n    {name}: {storage}\n"
CONV = "q[key_head key_dim tap+draft_tokens] k[key_head key_dim tap+draft_tokens] v[head value_dim tap+draft_tokens]"
BY_TAP = "q[key_head key_dim] k[key_head key_dim] v[head value_dim]"
MAMBA2 = "x[head head_dim tap+draft_tokens] b[bc_group state tap+draft_tokens] c[bc_group state tap+draft_tokens]"
TURNED = MAMBA2.replace("x[head head_dim tap+draft_tokens]", "x[tap head head_dim]")


@pytest.mark.parametrize(
    ("name", "kind", "storage", "same"),
    [
        ("qwen3-next-80b__tp1", "gdn", f"layer {{ block {{ {CONV} ssm[head value_dim key_dim] }} }}", True),
        ("qwen3-next-80b__tp1", "gdn", f"layer {{ block {{ ssm[head value_dim key_dim] {CONV} }} }}", False),
        ("qwen3.5-35b__tp1", "gdn", f"layer {{ block {{ {CONV} ssm[key_dim head value_dim] }} }}", False),
        ("qwen3.5-35b__tp1", "gdn", f"layer {{ block {{ tap {{ {BY_TAP} }} ssm[head value_dim key_dim] }} }}", False),
        ("kimi-linear-48b__tp2", "kda", f"layer {{ block {{ {CONV} ssm[head row value_dim] }} }}", True),
        ("kimi-linear-48b__tp2", "kda", f"layer {{ block {{ ssm[head row value_dim] {CONV} }} }}", False),
        ("nemotron-3-nano-30b__tp4", "mamba2", f"layer {{ block {{ {MAMBA2} ssm[head head_dim state] }} }}", True),
        ("nemotron-3-nano-30b__tp4", "mamba2", f"layer {{ block {{ ssm[head head_dim state] {MAMBA2} }} }}", False),
        ("nemotron-3-nano-30b__tp4", "mamba2", f"layer {{ block {{ {MAMBA2} ssm[head state head_dim] }} }}", False),
        ("nemotron-3-nano-30b__tp4", "mamba2", f"layer {{ block {{ {TURNED} ssm[head head_dim state] }} }}", False),
        ("falcon-mamba-7b__tp2", "mamba1", "layer { block { x[channel tap] ssm[channel state] } }", True),
        ("falcon-mamba-7b__tp2", "mamba1", "layer { block { x[tap channel] ssm[channel state] } }", False),
        ("falcon-mamba-7b__tp2", "mamba1", "layer { block { x[channel tap] ssm[state channel] } }", False),
        ("falcon-mamba-7b__tp2", "mamba1", "layer { block { ssm[channel state] x[channel tap] } }", False),
        ("lfm2-1.2b__tp2_draft2", "short_conv", "layer { block { x[channel tap+draft_tokens] } }", True),
        ("lfm2-1.2b__tp2_draft2", "short_conv", "layer { block { x[channel tap] } }", False),
        ("lfm2-1.2b__tp2_draft2", "short_conv", "layer { block { tap+draft_tokens { x[channel] } } }", False),
        ("mimo-v2-flash__tp1", "gqa", "layer { block { head { token { k[dim] v[dim] } } } }", True),
        ("mimo-v2-flash__tp1", "gqa", "layer { block { head { token { v[dim] k[dim] } } } }", False),
    ],
)  # fmt: skip
def test_what_a_page_is_made_of_is_compared(tmp_path: Path, name: str, kind: str, storage: str, same: bool) -> None:
    dump = read(name)
    order = "LBHNC" if kind == "gqa" else dump.side["conv"]
    (tmp_path / "mutant.yaml").write_text(OWN.format(kind=kind, name=order, storage=storage))
    mutant = load((), (tmp_path,))
    found = compare(dump, bound(mutant, dump, "engine=mutant"))
    assert (found == ()) == same
    page = any(d.what in ("bytes of a page", "bytes between blocks") for d in found)
    assert same or page or {d.what for d in found} <= {"parts of a state", "parts of a row"}
