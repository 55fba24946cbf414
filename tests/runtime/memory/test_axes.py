"""An error about an array in another order says which order it is and what to do, or nothing if that is unclear."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from tests.paths import ROOT

from kvplan.compiler.api import compile_pair
from kvplan.dsl.library import load
from kvplan.plan.planes import planes
from kvplan.plan.types import Group, Planes, Side, View, Worker
from kvplan.runtime import Memory, errors, views

MODEL = "qwen3-0.6b"
LAYERS, BLOCKS, TOKENS, CONTENT = 28, 32, 16, 256
SIDES = ["engine=vllm,tp=2,order={}", "engine=vllm-legacy,tp=2,order={}", "engine=sglang,tp=2,block=64,order={}"]


def compiled(side: str) -> Side:
    return compile_pair(load(), MODEL, side, "tp=1").plan.prefill


def items(*shape: int) -> Any:
    return np.zeros(shape, np.uint16)


def stored(side: Side) -> dict[Any, Any]:
    """Memory of worker 0 as the engine of a side has it: an array for each plane, an axis for each of the plan's."""
    found: dict[Any, Any] = {}
    for plane, entry in zip(planes(side.workers[0]), side.workers[0].planes * LAYERS * 2, strict=False):
        view, tensors = entry.views[0], len(entry.views)
        axes = [(count, step) for _, count, step in view.axes]
        if tensors > 1:
            axes.append((tensors, entry.views[1].offset))
        axes.sort(key=lambda axis: -axis[1])
        found[plane.name] = items(BLOCKS, *(count for count, _ in axes))
    return found


def refused(side: Side, arrays: dict[Any, Any]) -> str:
    with pytest.raises(errors.RegisterError) as found:
        views(side, 0, arrays)
    return str(found.value)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize(("planned", "real"), [("hnd", "nhd"), ("nhd", "hnd")])
def test_who_follows_the_advice_is_right(side: str, planned: str, real: str) -> None:
    arrays = stored(compiled(side.format(real)))
    said = refused(compiled(side.format(planned)), arrays)
    assert f"This looks like {real}: compile that side as " in said
    advised = re.split("compile that side as ", said)[1]
    assert views(compiled(advised), 0, arrays).blocks == {"attention": BLOCKS}


def test_the_page_of_the_documentation_shows_it() -> None:
    shown = " ".join((ROOT / "docs" / "runtime.md").read_text().split())
    assert refused(compiled("tp=2"), by_layer(NHD)) in shown


def by_layer(array: Any) -> dict[str, Any]:
    return {f"attention.{layer}": array for layer in range(LAYERS)}


def halves(array: Any) -> dict[Any, Any]:
    both = {"k": array[..., : CONTENT // 2], "v": array[..., CONTENT // 2 :]}
    return {(f"attention.{layer}", name): half for layer in range(LAYERS) for name, half in both.items()}


NHD = items(BLOCKS, TOKENS, 4, CONTENT)


@pytest.mark.parametrize("arrays", [
    by_layer(NHD), by_layer(NHD.transpose(0, 2, 1, 3)), by_layer(NHD[:TOKENS]), by_layer(NHD[:1]),
    by_layer(NHD.reshape(BLOCKS, TOKENS, 4, 2, 128)), by_layer(NHD.view(np.uint8)), by_layer(NHD[:, :, None]),
    halves(NHD), halves(NHD.transpose(0, 2, 1, 3)),
])  # fmt: skip
def test_one_order_in_many_forms(arrays: dict[Any, Any]) -> None:
    assert refused(compiled("tp=2"), arrays).endswith("This looks like nhd: compile that side as tp=2,order=nhd")


@pytest.mark.parametrize(("array", "seen", "planned"), [
    (items(BLOCKS, LAYERS, 4, TOKENS, CONTENT)[:, 3], "block, layer", "layer, block"),
    (items(BLOCKS, LAYERS, TOKENS, 4, CONTENT)[:, 3], "block, layer, token, head", "layer, block, head, token"),
    (items(BLOCKS, 4, LAYERS, TOKENS, CONTENT)[:, :, 3], "block, head, layer", "layer, block, head"),
    (items(4, BLOCKS, TOKENS, CONTENT).transpose(1, 0, 2, 3), "head, block", "block, head"),
    (items(2, BLOCKS, TOKENS, 4, 128), "k/v, block, token, head", "block, head, token, k/v"),
    (items(BLOCKS, 2, 4, TOKENS, 128), "block, k/v, head, token", "block, head, token, k/v"),
    (Memory(1 << 40, LAYERS << 15, BLOCKS, ((BLOCKS - 1) * LAYERS + 1) << 15), "block, layer", "layer, block"),
])  # fmt: skip
def test_axes_that_lie_elsewhere(array: Any, seen: str, planned: str) -> None:
    said = refused(compiled("tp=2"), by_layer(array))
    assert f"look like {seen}; the plan's side tp=2 has {planned}. Compile that side with" in said


def test_layers_inside_a_block() -> None:
    inside = compiled("tp=2,order=BLHNC")
    said = refused(inside, {"attention": items(BLOCKS, LAYERS, TOKENS, 4, CONTENT)})
    assert "look like block, layer, token, head; the plan's side tp=2,order=BLHNC has block, layer, head, token" in said
    assert "order=nhd" not in said
    said = refused(inside, {"attention": items(LAYERS, BLOCKS, 4, TOKENS, CONTENT).swapaxes(0, 1)})
    assert "look like layer, block; the plan's side tp=2,order=BLHNC has block, layer" in said


def test_axes_that_are_not_in_the_order_of_their_bytes() -> None:
    side, array = compiled("tp=2"), items(BLOCKS, 4, TOKENS, CONTENT).transpose(0, 2, 1, 3)
    assert "pass array.transpose(0, 2, 1, 3)" in refused(side, by_layer(array))
    advised = {name: given.copy() for name, given in by_layer(array.transpose(0, 2, 1, 3)).items()}
    assert views(side, 0, advised).blocks == {"attention": BLOCKS}


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    tensor = torch.zeros((BLOCKS, TOKENS, 4, CONTENT), dtype=torch.bfloat16)
    assert "This looks like nhd" in refused(compiled("tp=2"), by_layer(tensor.permute(0, 2, 1, 3)))


def one_plane(store: str, *tensors: View) -> Side:
    page = max(view.offset + view.axes[0][1] * view.axes[0][2] for view in tensors)
    entry = Planes("cache", loops=(("layer", (0,), 1),), page_bytes=page, views=tensors)
    return Side("tp=1", "", (Group("cache", store, 16, 16),), (Worker((entry,)),))


def test_states_and_records() -> None:
    state = one_plane("state", View("taps", "bf16", axes=(("channel", 6, 8), ("tap", 4, 2))))
    said = refused(state, {("cache.0", "taps"): items(BLOCKS, 4, 6)})
    assert "look like block, tap, channel; the plan's side tp=1 has block, channel, tap. Compile" in said
    axes = ("token", 16, 24), ("head", 2, 12)
    record = one_plane("tokens", View("data", "u8", axes=(*axes, ("dim", 8, 1))), View("scale", "f32", 8, axes))
    said = refused(record, {"cache.0": np.zeros((BLOCKS, 2, 16, 12), np.uint8)})
    assert "look like block, head, token; the plan's side tp=1 has block, token, head. This looks like hnd" in said


@pytest.mark.parametrize("array", [
    items(BLOCKS, 16, 16, 8).transpose(0, 2, 1, 3), items(BLOCKS, 4, 64, 8), items(BLOCKS, 16, 15, 8),
    items(16, 16, 16, 8)[:, ::2], np.broadcast_to(items(16, 8), (BLOCKS, 16, 16, 8)),
])  # fmt: skip
def test_what_is_unclear_is_not_guessed(array: Any) -> None:
    square = one_plane("tokens", View("k", "bf16", axes=(("head", 16, 256), ("token", 16, 16), ("dim", 8, 2))))
    said = refused(square, {"cache.0": array})
    assert "look" not in said
    assert "transpose" not in said


def test_names_of_planes() -> None:
    side, array = compiled("tp=2"), items(BLOCKS, 4, TOKENS, CONTENT)
    said = refused(side, by_layer(array) | {"attention.30": array})
    assert re.search(
        r"no plane 'attention\.30'; did you mean '(attention\.\d+)'\? It has 28 planes: \1, attention", said
    )
    said = refused(side, {"layers.0": array})
    assert said.endswith(
        "plane 'layers.0'. It has 28 planes: " + ", ".join([f"attention.{n}" for n in range(5)]) + ", 23 more"
    )
    by_head = compiled("tp=2,order=LHBNC")
    assert "did you mean 'attention.7.0'? It has 112 planes: attention.7.0, attention.7.1" in refused(
        by_head, {"attention.7": array}
    )
    assert "planes attention.1, attention.2, attention.3, attention.4, attention.5, 22 more are not covered" in refused(
        side, {"attention.0": array}
    )


@pytest.mark.parametrize("key", [0, None, ("attention.0", 0), ("attention.0", "k", "v"), ()])
def test_keys_that_are_no_names(key: Any) -> None:
    assert "use the name of a plane, or (plane, tensor)" in refused(compiled("tp=2"), {key: items(1)})


def test_names_of_tensors() -> None:
    side, found = compiled("tp=2"), halves(items(BLOCKS, 4, TOKENS, CONTENT))
    said = refused(side, {("attention.0", "kk"): items(1), **found})
    assert "plane attention.0 has no tensor 'kk'; did you mean 'k'? It has 2 tensors: k, v" in said
    del found["attention.0", "v"]
    assert "plane attention.0: pass all tensors or none; not covered: v" in refused(side, found)
