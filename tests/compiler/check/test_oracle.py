"""The oracle against addresses worked out by hand (reference geometry of real caches)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import block_table

from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.labels import paged
from kvplan.compiler.check.oracle import planes, share

HEADS, N, DIM, LAYERS = 4, 16, 8, 3
C = 2 * DIM * 2
ORDERS: dict[str, tuple[str, Any]] = {
    "LBHNC": ("layer { block { head { token { k[dim] v[dim] } } } }", lambda n, h, t: h * N * C + t * C),
    "LBNHC": ("layer { block { token { head { k[dim] v[dim] } } } }", lambda n, h, t: t * HEADS * C + h * C),
    "LHBNC": ("layer { head { block { token { k[dim] v[dim] } } } }", lambda n, h, t: t * C),
    "BLHNC": (
        "block { layer { head { token { k[dim] v[dim] } } } }",
        lambda n, h, t: n * HEADS * N * C + h * N * C + t * C,
    ),
    "BLNHC": (
        "block { layer { token { head { k[dim] v[dim] } } } }",
        lambda n, h, t: n * HEADS * N * C + t * HEADS * C + h * C,
    ),
    "BHLNC": (
        "block { head { layer { token { k[dim] v[dim] } } } }",
        lambda n, h, t: h * LAYERS * N * C + n * N * C + t * C,
    ),
}


def attention(text: Any, tp: int = 1, layers: int = LAYERS, heads: int = HEADS) -> BoundSide:
    split = {"head": "tp"}
    k, v = (tensor(t, 2, split, head=heads, token=0, dim=DIM) for t in "kv")
    return side([cache(text, k, v, layers=range(layers), kernel=N)], tp=tp)


def state(text: str, *tensors: Any, tp: int = 1, stride: int | None = None, **env: Any) -> Any:
    s = side([cache(text, *tensors, stride=stride, **env)], tp=tp)
    return planes(s, s.workers[-1])["c.0"]


@pytest.mark.parametrize("order", ORDERS)
def test_strides_of_the_six_orders(order: str) -> None:
    text, address = ORDERS[order]
    s = attention(text)
    found = planes(s, s.workers[0])
    assert len(found) == {"L": LAYERS, "B": 1}[order[0]] * (HEADS if order.startswith("LH") else 1)
    for plane in found.values():
        for f, half in zip(plane.fields, (0, DIM * 2), strict=True):
            layers, heads = f.axes[0][1], f.axes[1][1]
            for at in np.ndindex(f.offset.shape):
                want = address(layers[at[0]], heads[at[1]], at[2]) + half + at[3] * 2
                assert f.offset[at] == want, (plane.name, f.tensor.name, at)


def test_names_of_planes_say_layer_head_and_part() -> None:
    lh = attention(ORDERS["LHBNC"][0], tp=2)
    assert list(planes(lh, lh.workers[1]))[:3] == ["c.0.2", "c.0.3", "c.1.2"]
    two = attention("layer { block { head { token { k[dim] } } } block { head { token { v[dim] } } } }", layers=1)
    assert list(planes(two, two.workers[0])) == ["c.0.0", "c.0.1"]
    loop = "layer {{ block {{ head {{ token {{ {}[dim] }} }} }} }}"
    parts = attention({"K": loop.format("k"), "V": loop.format("v")}, layers=1)
    assert list(planes(parts, parts.workers[0])) == ["c.0.K", "c.0.V"]
    inside = attention(ORDERS["BLHNC"][0])
    assert [p.layer for p in planes(inside, inside.workers[0]).values()] == [None]


@pytest.mark.parametrize(
    ("tp", "page", "x", "b", "c", "ssm"),
    [(4, 533_504, 0, 6_144, 7_680, 9_216), (1, 2_134_016, 0, 24_576, 30_720, 36_864)],
)
def test_the_state_page_of_a_hybrid(tp: int, page: int, x: int, b: int, c: int, ssm: int) -> None:
    parts = (
        tensor("x", 2, {"head": "tp"}, head=64, hd=64, tap=3),
        tensor("b", 2, {"group": "tp"}, group=8, st=128, tap=3),
        tensor("c", 2, {"group": "tp"}, group=8, st=128, tap=3),
        tensor("ssm", 4, {"head": "tp"}, head=64, hd=64, st=128),
    )
    text = "layer { block { x[head hd tap+draft] b[group st tap+draft] c[group st tap+draft] ssm[head hd st] } }"
    plane = state(text, *parts, tp=tp, stride=page + 4096, draft=0)
    assert (plane.page, plane.stride) == (page, page + 4096)
    assert [f.offset.min() for f in plane.fields] == [x, b, c, ssm]
    assert plane.fields[3].offset[0, 1, 2, 3] == ssm + ((1 * 64 + 2) * 128 + 3) * 4
    drafted = state(text, *parts, tp=tp, draft=1)
    assert drafted.page == page + (4096 + 2 * 1024) // tp * 2
    assert drafted.fields[0].offset[0, 0, 1, 2] == 1 * 4 * 2 + 2 * 2


def test_a_single_group_is_copied_to_every_worker() -> None:
    parts = (
        tensor("x", 2, {"head": "tp"}, head=128, hd=64, tap=3),
        tensor("b", 2, {"group": "tp"}, group=1, st=128, tap=3),
        tensor("c", 2, {"group": "tp"}, group=1, st=128, tap=3),
    )
    plane = state("layer { block { x[head hd tap] b[group st tap] c[group st tap] } }", *parts, tp=2)
    assert [f.offset.min() for f in plane.fields] == [0, 24_576, 25_344]
    assert [list(f.axes[1][1][:2]) for f in plane.fields] == [[64, 65], [0], [0]]


@pytest.mark.parametrize(
    ("n", "tp", "copies", "want"),
    [
        (8, 4, "consecutive", [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (5, 3, "consecutive", [[0], [1, 2], [3, 4]]),
        (2, 4, "consecutive", [[0], [0], [1], [1]]),
        (2, 4, "round_robin", [[0], [1], [0], [1]]),
        (3, 5, "consecutive", [[0], [0], [1], [1], [2]]),
    ],
)
def test_who_holds_which_items(n: int, tp: int, copies: str, want: list[list[int]]) -> None:
    s = side([cache("layer { block { t[a] } }", tensor("t", a=n))], tp=tp, copies=copies)
    assert [share(s, w, "tp", n, None).tolist() for w in s.workers] == want


def test_a_record_with_its_scales_behind_all_data_rounds_the_page_up() -> None:
    parts = (
        tensor("nope", 1, token=0, dim=448),
        tensor("rope", 2, token=0, r=64),
        tensor("sc", 1, token=0, q=7),
    )
    text = "layer { block { token { nope[dim] rope[r] } token { sc[q] pad(1) } align(576) } }"
    s = side([cache(text, *parts, kernel=64)])
    plane = planes(s, s.workers[0])["c.0"]
    assert plane.page == -(-64 * 584 // 576) * 576
    nope, rope, scale = (f.offset for f in plane.fields)
    assert (nope[0, 3, 5], rope[0, 3, 5], scale[0, 3, 5]) == (3 * 576 + 5, 3 * 576 + 448 + 10, 64 * 576 + 3 * 8 + 5)


def test_tiles_permute_scales_and_swizzle_keys() -> None:
    scales = state("layer { block { sc[s%4 s/4] } }", tensor("sc", 1, s=32))
    assert [scales.fields[0].offset[0, s] for s in range(32)] == [8 * (s & 3) + (s >> 2) for s in range(32)]
    k = tensor("k", 2, head=2, token=0, dim=16)
    s = side([cache("layer { block { k[head dim/8 token dim%8] } }", k, kernel=4)])
    offset = planes(s, s.workers[0])["c.0"].fields[0].offset
    assert offset[0, 1, 3, 13] == 1 * 2 * 4 * 8 * 2 + 1 * 4 * 8 * 2 + 3 * 8 * 2 + 5 * 2
    chained = state("layer { block { t[a%8/4 a/8 a%4] } }", tensor("t", 1, a=16))
    assert chained.fields[0].offset[0, 13] == 1 * 8 + 1 * 4 + 1


def test_a_tensor_that_does_not_exist_takes_no_bytes() -> None:
    text = "layer { block { a[x] gone[x] { gone } b } }".replace("gone[x] { gone }", "gone[x]")
    plane = state(text, tensor("a", 2, x=3), tensor("b", 4))
    assert plane.page == 10
    assert plane.fields[1].offset.tolist() == [6]


def test_align_counts_from_the_enclosing_braces() -> None:
    plane = state("layer { block { pad(3) a[x] y { b align(4) } } }", tensor("a", 1, x=1), tensor("b", 1, y=2))
    assert plane.page == 3 + 1 + 2 * 4
    assert plane.fields[1].offset.tolist() == [[4, 8]]


def test_kernel_blocks_of_a_logical_block() -> None:
    c = cache("layer { block { k[token] } }", tensor("k", 1, token=0), kernel=16)
    s = side([c], [group((c, (0,)), ratio=131)])
    found = paged(s, s.workers[0], s.groups[0], block_table(1, (7, None, 3)))
    assert found.ids.tolist() == [*range(3 * 131, 4 * 131), *range(7 * 131, 8 * 131)]
    assert found.token[131, 0] == 2096
    assert found.token[0, 5] == 3 * 2096 + 5


def test_tokens_go_round_the_workers_in_turns() -> None:
    """Two workers, blocks of 4 tokens each, turns of 2: block position 0 holds tokens 0-7."""
    s = side([cache("layer { block { k[token] } }", tensor("k", 1, token=0), kernel=4)], tp=2, dcp=2, chunk=2)
    first, second = (paged(s, w, s.groups[0], block_table(0, (5, 2))) for w in s.workers)
    assert first.ids.tolist() == second.ids.tolist() == [2, 5]
    assert first.token.tolist() == [[8, 9, 12, 13], [0, 1, 4, 5]]
    assert second.token.tolist() == [[10, 11, 14, 15], [2, 3, 6, 7]]


def test_layers_inside_a_block_are_those_of_its_table() -> None:
    c = cache("block { layer { k[token] } }", tensor("k", 1, token=0), layers=range(4), kernel=2)
    s = side([c], [group((c, (1, 3)))], stages=(range(0, 2), range(2, 4)))
    assert [planes(s, w)["c"].fields[0].axes[0][1].tolist() for w in s.workers] == [[1], [3]]
