"""Cache memory is taken only where it is exactly as the plan says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.runtime.helpers.plans import ROW, STATE, Model, Shape, plan
from tests.runtime.helpers.worlds import memory

from kvplan.plan.types import Group, Planes, Side, View, Worker
from kvplan.runtime import Memory, errors, views
from kvplan.runtime.memory.geometry import bridgeable
from kvplan.runtime.memory.register import element

SHAPE, MODEL = Shape(1, tail=16, ratio=2), Model()
SIDE = plan(SHAPE, SHAPE, MODEL).decode
PAGE, STRIDE = 2 * 4 * ROW, 2 * 4 * ROW + 16


def arrays(**change: object) -> dict[Any, Any]:
    return memory(SHAPE, MODEL, 0) | {name.replace("_", "."): value for name, value in change.items()}


def test_a_whole_pool() -> None:
    given = arrays()
    pool = views(SIDE, 0, given)
    assert pool.blocks == {"kv": 40, "state": 40}
    assert pool.geometry.base.tolist() == [given[n].ctypes.data for n in ("kv.3", "kv.7", "state.3", "state.7")]
    assert len(pool.geometry.regions) == 2
    assert sorted(pool.geometry.regions[:, 1].tolist()) == [2 * 40 * 2 * STATE, 2 * 80 * STRIDE - 16]


def test_flat_memory_and_pages_of_any_inner_shape() -> None:
    flat = np.zeros(80 * STRIDE, np.uint8)
    shaped = np.zeros((80, STRIDE // 2), np.uint16)[:, : PAGE // 2].reshape(80, 1, PAGE // 2)
    pages = np.lib.stride_tricks.as_strided(np.zeros(80 * STRIDE, np.uint8), (80, 2, PAGE // 2), (STRIDE, PAGE // 2, 1))
    for array in (flat, np.zeros((80, STRIDE), np.uint8)[:, :PAGE], pages):
        assert views(SIDE, 0, arrays(kv_3=array)).geometry.count[0] == 80
    assert shaped.shape == (80, 1, PAGE // 2)


def test_buffers_and_explicit_memory() -> None:
    owner = bytearray(80 * STRIDE)
    assert views(SIDE, 0, arrays(kv_3=memoryview(owner))).geometry.count[0] == 80
    explicit = Memory(1 << 40, STRIDE, 80, 79 * STRIDE + PAGE, allocation=(1 << 40, 1 << 30))
    assert views(SIDE, 0, arrays(kv_3=explicit)).geometry.base[0] == 1 << 40


def test_tensors_by_their_own_axes() -> None:
    whole = np.zeros((80, STRIDE), np.uint8)
    tensor = np.lib.stride_tricks.as_strided(whole.view(np.uint16), (80, 2, 4, 4), (STRIDE, 4 * ROW, ROW, 2))
    given = arrays() | {("kv.3", "k"): tensor}
    del given["kv.3"]
    assert views(SIDE, 0, given).geometry.base[0] == whole.ctypes.data


@pytest.mark.parametrize(
    ("shape", "strides", "kind", "text"),
    [
        ((80, 2, 4, 4), (STRIDE, 4 * ROW, ROW + 2, 2), np.uint16, "strides"),
        ((80, 2, 4, 4), (STRIDE - 2, 4 * ROW, ROW, 2), np.uint16, "strides"),
        ((80, 4, 2, 4), (STRIDE, ROW, 4 * ROW, 2), np.uint16, "shape"),
        ((80, 2, 4, 4), (STRIDE, 4 * ROW, ROW, 2), np.uint8, "elements of 1 bytes"),
    ],
)
def test_tensors_that_differ(shape: tuple, strides: tuple, kind: type, text: str) -> None:
    whole = np.zeros(90 * STRIDE, np.uint8)
    given = arrays() | {("kv.3", "k"): np.lib.stride_tricks.as_strided(whole.view(kind), shape, strides)}
    del given["kv.3"]
    with pytest.raises(errors.RegisterError, match=text):
        views(SIDE, 0, given)


BAD = {
    "stride by one": (
        np.lib.stride_tricks.as_strided(np.zeros(9999, np.uint8), (80, PAGE), (STRIDE + 1, 1)),
        "bytes apart",
    ),
    "page too short": (np.zeros((80, STRIDE), np.uint8)[:, : PAGE - 1], "a page has 63 bytes"),
    "page too long": (np.zeros((80, STRIDE), np.uint8)[:, : PAGE + 1], "a page has 65 bytes"),
    "page with a hole": (np.zeros((80, STRIDE), np.uint8)[:, ::2], "not contiguous"),
    "half a logical block": (np.zeros((81, STRIDE), np.uint8), "not a whole number of logical blocks"),
    "fewer blocks than the other layer": (np.zeros((78, STRIDE), np.uint8), "one group has one block table"),
    "ragged flat memory": (np.zeros(80 * STRIDE - 1, np.uint8), "not whole blocks"),
    "no blocks": (np.zeros((0, STRIDE), np.uint8), "no blocks"),
    "beyond its allocation": (
        np.lib.stride_tricks.as_strided(np.zeros(100, np.uint8), (80, PAGE), (STRIDE, 1)),
        "leaves its allocation",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_pages_that_differ(name: str) -> None:
    array, text = BAD[name]
    with pytest.raises(errors.KvplanError, match=text):
        views(SIDE, 0, arrays(kv_3=array))


def test_every_plane_is_covered_and_known() -> None:
    given = arrays()
    del given["state.7"]
    with pytest.raises(errors.RegisterError, match=r"state\.7 is not covered"):
        views(SIDE, 0, given)
    with pytest.raises(errors.RegisterError, match=r"did you mean 'kv\.3'"):
        views(SIDE, 0, arrays(kv_33=np.zeros(8)))


@pytest.mark.parametrize("value", [object(), 7, [1, 2], np.zeros((80, STRIDE), np.uint8)[:, ::-1]])
def test_what_is_no_memory(value: object) -> None:
    with pytest.raises(errors.CacheMemoryError, match=r"^kv\.3: "):
        views(SIDE, 0, arrays(kv_3=value))


@pytest.mark.parametrize(
    "explicit",
    [
        {"base": 0},
        {"base": (1 << 63) - 100},
        {"base": -8},
        {"nbytes": 8},
        {"mem_type": "HBM"},
        {"mem_type": "VRAM"},
        {"allocation": (1 << 41, 1 << 20)},
    ],
)
def test_explicit_memory_that_cannot_be(explicit: dict) -> None:
    with pytest.raises(errors.KvplanError):
        views(
            SIDE,
            0,
            arrays(kv_3=Memory(**{"base": 1 << 40, "stride": STRIDE, "blocks": 80, "nbytes": 80 * STRIDE} | explicit)),
        )


def test_padding_that_holds_another_plane_is_not_bridged() -> None:
    """Two layers in turns: what lies between the pages of one is the other's."""
    side = plan(Shape(1, tail=2 * 4 * ROW), Shape(1), Model(state=False)).prefill
    both = np.zeros((10, 2, PAGE), np.uint8)
    woven = views(side, 0, {"kv.3": both[:, 0], "kv.7": both[:, 1]})
    apart = views(side, 0, memory(Shape(1, tail=2 * 4 * ROW), Model(state=False), 0))
    assert bridgeable(woven.geometry, side, 0).tolist() == [False, False]
    assert bridgeable(apart.geometry, side, 0).tolist() == [True, True]
    assert len(woven.geometry.regions) == 1


def test_planes_of_one_arena_may_overlay() -> None:
    model = Model(states_overlay=True)
    side = plan(Shape(1, tail=16, ratio=2), Shape(1), model).prefill
    kv = np.zeros((2, 40, 2 * STRIDE), np.uint8)
    given = {f"{cache}.{layer}": kv[index] for index, layer in enumerate((3, 7)) for cache in ("kv", "state")}
    given = {
        name: array.reshape(80, STRIDE) if name[0] == "k" else array[:, : 2 * STATE] for name, array in given.items()
    }
    pool = views(side, 0, given)
    assert bridgeable(pool.geometry, side, 0).all()
    assert len(pool.geometry.regions) == 1


def shifted(by: int, tail: int = 0) -> dict[str, Any]:
    """Two layers, the second `by` bytes behind the first."""
    stride = PAGE + tail
    flat = np.zeros(10 * stride + 2 * by, np.uint8)
    return {
        name: np.lib.stride_tricks.as_strided(flat[at:], (10, PAGE), (stride, 1))
        for name, at in (("kv.3", 0), ("kv.7", by))
    }


@pytest.mark.parametrize(("by", "tail"), [(0, 0), (32, 0), (PAGE, 0), (PAGE - 1, PAGE), (PAGE + 1, PAGE), (PAGE, 63)])
def test_planes_that_share_bytes_are_refused(by: int, tail: int) -> None:
    side = plan(Shape(1, tail=tail), Shape(1), Model(state=False)).prefill
    with pytest.raises(errors.RegisterError, match=r"kv\.3 and kv\.7 share bytes"):
        views(side, 0, shifted(by, tail))
    for apart in (10 * (PAGE + tail), 9 * (PAGE + tail) + PAGE):
        assert views(side, 0, shifted(apart, tail)).blocks == {"kv": 10}


def test_planes_of_unlike_strides_are_compared_by_range() -> None:
    given = arrays()
    states = np.zeros((40, 2 * STATE), np.uint8)
    flat = np.zeros(80 * STRIDE, np.uint8)
    views(SIDE, 0, given | {"kv.3": flat, "state.3": states})
    with pytest.raises(errors.RegisterError, match="share bytes"):
        views(SIDE, 0, given | {"kv.3": flat, "state.3": flat[STRIDE : STRIDE + states.size].reshape(states.shape)})


@pytest.mark.parametrize(("kind", "shape"), [
    (np.uint16, (2, 4, 4)), (np.uint16, (2, 16)), (np.uint16, (32,)), (np.uint16, (2, 1, 4, 4)),
    (np.uint8, (2, 4, 8)), (np.uint8, (64,)),
])  # fmt: skip
def test_pages_of_the_plans_axes(kind: type, shape: tuple[int, ...]) -> None:
    side = plan(Shape(1), Shape(1), Model(state=False)).prefill
    given = memory(Shape(1), Model(state=False), 0)
    assert views(side, 0, given | {"kv.3": given["kv.3"].view(kind).reshape(40, *shape)}).blocks == {"kv": 40}


@pytest.mark.parametrize(("kind", "shape", "text"), [
    (np.uint16, (4, 2, 4), "a page has the axes"), (np.uint8, (4, 16), "a page has the axes"),
    (np.float32, (16,), "elements of 4 bytes"), (np.float32, (2, 4, 2), "elements of 4 bytes"),
])  # fmt: skip
def test_pages_of_other_axes_or_items(kind: type, shape: tuple[int, ...], text: str) -> None:
    side = plan(Shape(1), Shape(1), Model(state=False)).prefill
    given = memory(Shape(1), Model(state=False), 0)
    with pytest.raises(errors.RegisterError, match=text):
        views(side, 0, given | {"kv.3": given["kv.3"].view(kind).reshape(40, *shape)})
    if kind is np.float32:
        with pytest.raises(errors.RegisterError, match=text):
            views(side, 0, given | {"kv.3": given["kv.3"].view(kind).reshape(-1)})


def test_tensors_that_share_a_page() -> None:
    """Side by side in the last axis, or one behind the other as an axis of their own."""
    axes = (("token", 4, 16), ("dim", 4, 2))
    packed = (View("k", "bf16", 0, axes), View("v", "bf16", 8, axes))
    behind = tuple(View(name, "bf16", at, (("token", 4, 8), ("dim", 4, 2))) for name, at in (("k", 0), ("v", 32)))
    unlike = View("c", "bf16", 0, (("token", 4, 16), ("dim", 6, 2))), View("r", "bf16", 12, (("token", 4, 16),))
    cases = [(packed, (4, 8), (8, 4)), (packed, (4, 2, 4), (2, 4, 4)), (behind, (2, 4, 4), (4, 2, 4)),
             (unlike, (4, 8), (8, 4))]  # fmt: skip
    for found, good, bad in cases:
        loops = (("layer", (0,), 1),)
        worker = Worker((Planes("kv", "kv", None, 0, loops, 64, 64, found),))
        side = Side("s", "", (Group("kv", "tokens", 4, 4, 1, 0),), (worker,))
        assert views(side, 0, {"kv.0": np.zeros((9, *good), np.uint16)}).blocks == {"kv": 9}
        with pytest.raises(errors.RegisterError, match="a page has the axes"):
            views(side, 0, {"kv.0": np.zeros((9, *bad), np.uint16)})


@pytest.mark.parametrize(
    ("dtype", "size"), [("bf16", 2), ("f32", 4), ("fp8", 1), ("fp8_e4m3", 1), ("u8", 1), ("fp4", None), ("x", None)]
)
def test_element(dtype: str, size: int | None) -> None:
    assert element(dtype) == size


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    given = {name: torch.zeros(array.shape, dtype=torch.uint8) for name, array in arrays().items()}
    half = torch.zeros((80, STRIDE // 2), dtype=torch.bfloat16)
    pool = views(SIDE, 0, given | {"kv.3": half[:, : PAGE // 2]})
    assert pool.geometry.base[0] == half.data_ptr()
    assert set(pool.geometry.mem_types) == {"DRAM"}
    with pytest.raises(errors.RegisterError, match="a page has"):
        views(SIDE, 0, given | {"kv.3": half[:, : PAGE // 2 - 1]})


@pytest.mark.parametrize("worker", [7, -1, "0", None])
def test_a_worker_that_the_side_does_not_have(worker: Any) -> None:
    made = plan(Shape(1), Shape(1))
    with pytest.raises(errors.RegisterError, match="is none of this side's 1"):
        views(made.prefill, worker, memory(Shape(1), Model(), 0))


def test_arrays_by_plane_only() -> None:
    with pytest.raises(errors.RegisterError, match="a mapping by plane, not list"):
        views(plan(Shape(1), Shape(1)).prefill, 0, [1])  # type: ignore[arg-type]
