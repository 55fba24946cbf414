"""Engines against their packages: what lies where equals what their own functions for shapes say."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.paths import TESTS

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.oracle import Ints, OraclePlane, planes
from kvplan.compiler.errors import CompileError
from kvplan.dsl.library import Library, load

HERE = TESTS / "compiler/toys"
Case = dict[str, Any]
SHAPES: dict[str, list[Case]] = json.loads((HERE / "shapes.json").read_text())
STATES = {
    "mamba2": "heads: 64, head_dim: 8, state: 16, groups: {groups}, conv: 4",
    "mamba1": "channels: 64, state: 16, conv: 4",
    "gdn": "key_heads: 4, value_heads: 8, key_dim: 8, value_dim: 16, conv: 4",
    "kda": "value_heads: 8, value_dim: 16, conv: 4, ssm_dtype: bf16",
    "short_conv": "channels: 64, conv: 3",
}
HEADER = "kvplan: 1\nmodel: one\ntitle: One\ndtype: bf16\nquery_heads: 8\n"
GROWING = ("mamba2", "gdn")
PARTS = ("x", "b", "c", "q", "k", "v")


@pytest.fixture(scope="module")
def library() -> Library:
    return load(layouts=(HERE,))


def bound(library: Library, text: str, model: str = "toy-heads") -> tuple[BoundSide, list[OraclePlane]]:
    """A side, and the planes of its first worker."""
    side = bind(library, library.model(model), text)
    return side, list(planes(side, side.workers[0]).values())


def offsets(page: OraclePlane, tensor: str, axes: tuple[str, ...]) -> Ints:
    """The offsets of a tensor's elements in a page, with its axes in the given order."""
    field = next(f for f in page.fields if f.tensor.name == tensor)
    have = [name for name, _ in field.axes]
    found: Ints = field.offset.transpose([have.index(axis) for axis in axes if axis in have])
    return found


def laid(shape: list[int], order: list[int], size: int) -> list[int]:
    """Byte strides of an array of `shape` whose axes lie in memory in `order`."""
    return [prod(shape[after] for after in order[order.index(axis) + 1 :]) * size for axis in range(len(shape))]


def addresses(shape: tuple[int, ...], strides: list[int]) -> Ints:
    """The address of every element."""
    found = np.zeros(shape, np.int64)
    for axis, stride in enumerate(strides):
        found += np.arange(shape[axis]).reshape([-1] + [1] * (len(shape) - axis - 1)) * stride
    return found


def legacy(case: Case) -> str:
    backend = "planes" if case["shape"][0] == 2 else "pages"
    words = ["engine=vllm-legacy", "tp=1", f"backend={backend}", f"order={case['layout'].lower()}"]
    if case["layers_inside"]:
        apart = case["order"][:3] == [1, 2, 4]
        place = "halves-inside" if case["layout"] == "NHD" else "k-then-v-inside" if apart else "rows-inside"
        words.append(f"place={place}")
    return ",".join(words + ([f"kv_dtype={case['dtype']}"] if case["dtype"] != "auto" else []))


@pytest.mark.parametrize("case", SHAPES["vllm"], ids=lambda c: f"{c['backend']}-{c['versions'][0]}-{legacy(c)}")
def test_legacy_keys_and_values(library: Library, case: Case) -> None:
    _, found = bound(library, legacy(case))
    size = 2 if case["dtype"] == "auto" else 1
    shape = [3, *case["shape"]] if case["layers_inside"] else case["shape"]
    layer = int(case["layers_inside"])
    strides = laid(shape, case["order"], size)
    block, half = (1 + layer, layer) if case["shape"][0] == 2 else (layer, 1 + layer)
    inside = tuple(strides[:layer] + [strides[i + layer] for i in (2, 3, 4)])
    want = addresses((3,) * layer + (16, 2, 8), list(inside))
    for name, at in (("k", 0), ("v", 1)):
        page = next(p for p in found if any(f.tensor.name == name for f in p.fields))
        mine = offsets(page, name, ("layer", "token", "head", "dim"))
        together = any(f.tensor.name == "k" for f in page.fields)
        got = mine if layer else mine.reshape(16, 2, 8)
        assert (got == want + (strides[half] * at if together else 0)).all()
        assert page.stride == strides[block]


@pytest.mark.parametrize("case", SHAPES["sglang"][:2], ids=lambda c: c["order"])
def test_sglang_keys_and_values(library: Library, case: Case) -> None:
    _, found = bound(library, f"engine=sglang,tp=1,block=16,order={case['order']}")
    for name in ("k", "v"):
        page = next(p for p in found if p.layer == 1 and any(f.tensor.name == name for f in p.fields))
        rows = case[name] if case["order"] == "hnd" else [case[name][0] // 16, 16, *case[name][1:]]
        strides = laid(rows, [0, 1, 2, 3], 2)
        axes = ("head", "token", "dim") if case["order"] == "hnd" else ("token", "head", "dim")
        assert (
            offsets(page, name, ("layer", *axes)).reshape(rows[1:]) == addresses(tuple(rows[1:]), strides[1:])
        ).all()
        assert page.stride == strides[0]


def test_sglang_indexer(library: Library) -> None:
    _, found = bound(library, "engine=sglang,tp=2,block=64", "toy-sparse")
    page = next(p for p in found if p.cache == "indexer")
    assert page.page == page.stride == SHAPES["sglang"][2]["k"][1]
    assert offsets(page, "scale", ("layer", "token", "tile")).ravel().tolist() == [64 * 128 + 4 * n for n in range(64)]


def test_gaudi_keys_and_values(library: Library) -> None:
    case = SHAPES["gaudi"][0]
    _, found = bound(library, "engine=gaudi,tp=1")
    strides = laid(case["k"], [0, 1, 2], 2)
    for name in ("k", "v"):
        (page, *others) = [p for p in found if any(f.tensor.name == name for f in p.fields)]
        assert len(others) == 2
        got = offsets(page, name, ("layer", "token", "head", "dim")).reshape(128, *case["k"][1:])
        assert (got == addresses((128, *case["k"][1:]), strides)).all()
        assert page.stride == case["k"][0] // case["blocks"] * strides[0]


def test_ascend_keys_and_values_by_token(library: Library) -> None:
    shape = SHAPES["ascend"][0]["shape"][1:]  # of K, and of V
    _, found = bound(library, "engine=ascend,tp=2", "toy-tiles")
    strides = laid(shape, [0, 1, 2, 3], 2)
    for name in ("k", "v"):
        (page, *others) = [p for p in found if any(f.tensor.name == name for f in p.fields)]
        assert len(page.fields) == 1
        assert len(others) == 2
        got = offsets(page, name, ("layer", "token", "head", "dim")).reshape(shape[1:])
        assert (got == addresses(tuple(shape[1:]), strides[1:])).all()
        assert page.stride == page.page == strides[0]


def test_ascend_keys_and_values_in_tiles(library: Library) -> None:
    blocks, tiles, tokens, elements = SHAPES["ascend"][1]["shape"][1:]
    _, found = bound(library, "engine=ascend,order=nz,tp=2", "toy-tiles")
    strides = laid([blocks, tiles, tokens, elements], [0, 1, 2, 3], 2)
    want = addresses((tiles, tokens, elements), strides[1:]).reshape(2, tiles // 2, tokens, elements)
    for name in ("k", "v"):
        page = next(p for p in found if any(f.tensor.name == name for f in p.fields))
        got = offsets(page, name, ("layer", "head", "token", "dim")).reshape(2, tokens, -1)
        assert (got == want.transpose(0, 2, 1, 3).reshape(got.shape)).all()
        assert page.stride == page.page == strides[0]


@pytest.mark.parametrize("order", ["nd", "nz"])
def test_ascend_latents(library: Library, order: str) -> None:
    """Latent and rotary key have allocations of their own, of one shape but for the last axis."""
    _, tokens, _, both = SHAPES["ascend"][2]["shape"]
    _, found = bound(library, f"engine=ascend,order={order},tp=2", "toy-latent")
    sizes = {"latent": 512, "rope": both - 512}
    for name, elements in sizes.items():
        page = next(p for p in found if any(f.tensor.name == name for f in p.fields))
        got = offsets(page, name, ("layer", "token", "dim", "turn")).reshape(tokens, elements)
        token, element = np.arange(tokens)[:, None], np.arange(elements)
        tiled = (element // 16 * tokens + token) * 16 + element % 16
        assert (got == 2 * (tiled if order == "nz" else token * elements + element)).all()
        assert page.stride == page.page == 2 * tokens * elements


def test_rbln_keys_and_values(library: Library) -> None:
    _, heads, one, tokens, elements = SHAPES["rbln"][0]["shape"][1:]
    _, found = bound(library, "engine=rbln,block=32,tp=2", "toy-tiles")
    strides = laid([heads, one, tokens, elements], [0, 1, 2, 3], 2)
    for name in ("k", "v"):
        page = next(p for p in found if any(f.tensor.name == name for f in p.fields))
        got = offsets(page, name, ("layer", "head", "token", "dim")).reshape(heads, one, tokens, elements)
        assert (got == addresses((heads, one, tokens, elements), strides)).all()
        assert page.stride == page.page == heads * strides[0]


def test_rbln_latents(library: Library) -> None:
    _, tokens, both = SHAPES["rbln"][1]["shape"]
    _, found = bound(library, "engine=rbln,block=32,tp=2", "toy-latent")
    page = found[0]
    assert page.stride == page.page == 2 * tokens * both
    for name, begin in (("latent", 0), ("rope", 512)):
        got = offsets(page, name, ("layer", "token", "dim", "turn")).reshape(tokens, -1)
        want = 2 * (np.arange(tokens)[:, None] * both + begin + np.arange(got.shape[1]))
        assert (got == want).all()


def state(case: Case, folder: Path) -> list[OraclePlane]:
    """The pages of a state of its own on the first worker."""
    params = STATES[case["kind"]].format(groups=case.get("groups"))
    (folder / "one.yaml").write_text(
        f"{HEADER}layers: 1\ncaches:\n  s: {{kind: {case['kind']}, layers: [0], {params}}}\n"
    )
    side = f"engine=sglang,recurrent=bf16,tp={case['tp']}"
    if case["engine"] == "vllm":
        word = "kda_conv" if case["kind"] == "kda" else "conv"
        side = f"engine=vllm-legacy,tp={case['tp']},{word}={case['conv_order']},draft_tokens={case['draft_tokens']}"
    return bound(load(layouts=(folder,)), side, "one")[1]


def convolutions(case: Case) -> list[Ints]:
    """The offsets of the taps of every channel, (channels, taps), for convolutions that follow each other."""
    first = (case["engine"] == "sglang" and case["kind"] == "kda") or case.get("conv_order", "DS") != "DS"
    found, begin = [], 0
    for shape in case["conv"]:
        channels, taps = shape[::-1] if first else shape
        channel, tap = np.arange(channels)[:, None], np.arange(taps)
        found.append(begin + 2 * (tap * channels + channel if first else channel * taps + tap))
        begin += 2 * channels * taps
    return found


@pytest.mark.parametrize("case", SHAPES["states"], ids=lambda c: "-".join(str(v) for v in c.values()))
def test_states(case: Case, tmp_path: Path) -> None:
    found = state(case, tmp_path)
    want = np.concatenate(convolutions(case))
    page = next(p for p in found if any(f.tensor.name in PARTS for f in p.fields))
    mine = [f for f in page.fields if f.tensor.name in PARTS]
    real = want.shape[1] - (case.get("draft_tokens", 0) if case["kind"] in GROWING else 0)
    assert (np.concatenate([f.offset.reshape(-1, real) for f in mine]) == want[:, :real]).all()
    matrices = [(p, f) for p in found for f in p.fields if f.tensor.name == "ssm"]
    for p, f in matrices:
        begin = 2 * want.size if p is page else 0
        assert f.offset.ravel().tolist() == [begin + 2 * n for n in range(prod(case["ssm"]))]
    assert len(matrices) == bool(case["ssm"])
    assert matrices or page.page == 2 * want.size


@pytest.mark.parametrize("case", SHAPES["ratios"], ids=str)
def test_ratios_of_a_hybrid(case: Case) -> None:
    """Kernel blocks of a logical block as the engine counts them: bytes of a state by those of a kernel block.

    An engine that knows keys alone counts twice as many of them: bytes of keys and values are meant here.
    """
    library = load()
    text = f"engine=vllm-legacy,tp={case['tp']},kernel_block=16" + (",kv_dtype=fp8" if case["kv_bytes"] == 1 else "")
    side, _ = bound(library, text, "nemotron-3-nano-30b")
    attention = next(g for g in side.groups if g.store == "tokens")
    assert attention.ratio == -(-case["ratio"] // (2 if case.get("keys_only") else 1))


def test_pages_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    caches = "  a: {kind: gqa, layers: [0], heads: 2, dim: 48}\n"
    caches += "  b: {kind: gqa, layers: [1], heads: 2, dim: 32, chunk: 64}\n"
    (tmp_path / "one.yaml").write_text(f"{HEADER}layers: 2\ncaches:\n{caches}")
    with pytest.raises(CompileError) as caught:
        bound(load(layouts=(tmp_path,)), "engine=vllm-legacy,tp=1", "one")
    assert caught.value.code == "C138"
