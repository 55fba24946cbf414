"""The order of channels, rows and pools inside a page, written down from the engines' code because no dump shows it."""

from __future__ import annotations

from math import prod

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.oracle import Ints, OraclePlane, planes
from kvplan.compiler.placement.place import place
from kvplan.dsl.library import Library, load

HYBRIDS = {
    # x | B | C: mamba_mixer2.py splits its convolution's channels so.
    "nemotron-3-nano-30b": (("x", 4096), ("b", 1024), ("c", 1024)),
    # q | k | v: qwen_gdn_linear_attn.py, kda.py.
    "qwen3-next-80b": (("q", 2048), ("k", 2048), ("v", 4096)),
    "kimi-linear-48b": (("q", 4096), ("k", 4096), ("v", 4096)),
}
# A side, whether taps lie outside channels, taps for drafted tokens.
STATES = [
    ("tp={tp}", False, 0),
    ("tp={tp},conv=SD", True, 0),
    ("tp={tp},draft_tokens=2", False, 2),
    ("tp={tp},conv=SD,draft_tokens=2", True, 2),
    ("engine=vllm-legacy,tp={tp}", False, 0),
    ("engine=vllm-legacy,tp={tp},conv=SD", True, 0),
]
DSA = "block=64,kv_dtype=fp8_ds_mla"
V4 = "order=BLHNC,block=256"


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


def page(library: Library, model: str, text: str, cache: str, rank: int = 0) -> OraclePlane:
    """The first page of a cache on one worker."""
    side = bind(library, library.model(model), text)
    return next(plane for plane in planes(side, side.workers[rank]).values() if plane.cache == cache)


def offsets(plane: OraclePlane, tensor: str, *axes: str) -> Ints:
    """The offsets of the first layer's elements of a tensor from the start of its page's first tensor, by `axes`."""
    field = next(field for field in plane.fields if field.tensor.name == tensor)
    names = [name for name, _ in field.axes]
    first = field.offset.take([0], names.index("layer")) if "layer" in names else field.offset
    found: Ints = first.transpose([*(names.index(axis) for axis in axes), *rest(names, axes)])
    return found.reshape([first.shape[names.index(axis)] for axis in axes])


def rest(names: list[str], axes: tuple[str, ...]) -> list[int]:
    return [n for n, name in enumerate(names) if name not in axes]


@pytest.mark.parametrize("model", HYBRIDS)
@pytest.mark.parametrize(("text", "taps_first", "drafts"), STATES)
@pytest.mark.parametrize(("tp", "rank"), [(1, 0), (2, 1), (4, 2)])
def test_channels_of_a_convolution(
    library: Library, model: str, text: str, taps_first: bool, drafts: int, tp: int, rank: int
) -> None:
    name = "mamba" if "nemotron" in model else "delta"
    plane = page(library, model, text.format(tp=tp), name, rank)
    widths = {part: width // tp for part, width in HYBRIDS[model]}
    channels, taps, begin = sum(widths.values()), 3 + drafts, 0
    for part, width in widths.items():
        field = next(field for field in plane.fields if field.tensor.name == part)
        names = [axis for axis, _ in field.axes if axis not in ("layer", "tap")]
        found = offsets(plane, part, *names, "tap").reshape(width, 3)
        rows = range(begin, begin + width)
        one, tap = (1, channels) if taps_first else (taps, 1)
        assert found.tolist() == [[2 * (row * one + n * tap) for n in range(3)] for row in rows], part
        begin += width
    size = 2 * channels * taps
    matrices = next(field for field in plane.fields if field.tensor.name == "ssm")
    wide = matrices.tensor.size
    assert matrices.offset.ravel().tolist() == [size + wide * n for n in range(matrices.offset.size)]


@pytest.mark.parametrize("model", HYBRIDS)
@pytest.mark.parametrize(
    ("text", "taps_first"),
    [
        ("engine=sglang,recurrent={ssm}", None),
        ("engine=gaudi,form=by_page", False),
        ("engine=gaudi,form=by_page,conv=SD-apart", True),
    ],
)
def test_channels_of_a_convolution_apart(library: Library, model: str, text: str, taps_first: bool | None) -> None:
    """memory_pool.py keeps a convolution's channels before its taps, but for KimiLinearStateShape."""
    ssm = "bf16" if "next" in model else "f32"
    side = bind(library, library.model(model), f"{text.format(ssm=ssm)},tp=2")
    first = "kimi" in model if taps_first is None else taps_first
    widths = {part: width // 2 for part, width in HYBRIDS[model]}
    channels, begin = sum(widths.values()), 0
    plane = next(plane for plane in planes(side, side.workers[1]).values() if plane.part == "conv")
    for part, width in widths.items():
        field = next(field for field in plane.fields if field.tensor.name == part)
        found = offsets(plane, part, *(axis for axis, _ in field.axes if axis not in ("layer", "tap")), "tap")
        one, tap = (1, channels) if first else (3, 1)
        want = [[2 * (row * one + n * tap) for n in range(3)] for row in range(begin, begin + width)]
        assert found.reshape(width, 3).tolist() == want, part
        begin += width


@pytest.mark.parametrize(("text", "name"), [(f"{DSA},tp=2", "indexer"), (f"{DSA},order=BLHNC", "indexer")])
def test_an_indexers_scales_lie_behind_all_keys_of_a_page(library: Library, text: str, name: str) -> None:
    plane = page(library, "deepseek-v3.2", text, name)
    keys, scales = offsets(plane, "k", "token", "dim"), offsets(plane, "scale", "token", "tile")
    base = int(keys[0, 0])
    assert (keys - base).tolist() == [[128 * token + n for n in range(128)] for token in range(64)]
    assert (scales - base).ravel().tolist() == [64 * 128 + 4 * token for token in range(64)]


def test_a_latents_record_is_data_then_scales_then_rotary_key(library: Library) -> None:
    """512 of fp8, four f32, 64 of bf16, token by token: flashmla_sparse.py."""
    plane = page(library, "deepseek-v3.2", DSA, "attention")
    for tensor, axis, at, size, count in (
        ("latent", "dim", 0, 1, 512),
        ("scale", "tile", 512, 4, 4),
        ("rope", "turn", 528, 2, 64),
    ):
        want = [[656 * token + at + size * n for n in range(count)] for token in range(64)]
        assert offsets(plane, tensor, "token", axis).tolist() == want


def test_a_plain_latents_rotary_key_is_behind_it(library: Library) -> None:
    plane = page(library, "deepseek-v3", "tp=1", "attention")
    assert offsets(plane, "latent", "token", "dim")[1].tolist() == [1152 + 2 * n for n in range(512)]
    assert offsets(plane, "rope", "token", "turn")[1].tolist() == [1152 + 1024 + 2 * n for n in range(64)]


@pytest.mark.parametrize(("cache", "rows"), [("few", 64), ("many", 2), ("window", 64)])
def test_exponents_of_compressed_latents_lie_behind_all_rows(library: Library, cache: str, rows: int) -> None:
    """448 of fp8 and 64 of bf16 a row, then 8 bytes a row, of which 7 are exponents: sparse_swa.py."""
    plane = page(library, "deepseek-v4-flash", V4, cache)
    base = int(offsets(plane, "latent", "token", "dim")[0, 0])
    for tensor, axis, step, at, size, count in (
        ("latent", "dim", 576, 0, 1, 448), ("rope", "turn", 576, 448, 2, 64), ("exponent", "tile", 8, rows * 576, 1, 7),
    ):  # fmt: skip
        found = offsets(plane, tensor, "token", axis) - base
        assert found.tolist() == [[step * row + at + size * n for n in range(count)] for row in range(rows)], tensor


@pytest.mark.parametrize(
    ("cache", "pools", "dim", "rows"),
    [("few-compressor", 2, 512, 4), ("many-compressor", 1, 512, 8), ("indexer-compressor", 2, 128, 4)],
)
def test_a_compressor_keeps_values_of_all_pools_then_their_scores(
    library: Library, cache: str, pools: int, dim: int, rows: int
) -> None:
    """compressor.py: kv_state in the first half of a row, score_state in the second."""
    plane = page(library, "deepseek-v4-flash", V4, cache)
    base = int(offsets(plane, "kv", "token", "pool", "dim")[0, 0, 0])
    half = pools * dim * 4
    for tensor, at in (("kv", 0), ("score", half)):
        found = offsets(plane, tensor, "token", "pool", "dim") - base
        want = [2 * half * row + at + 4 * n for row in range(rows) for n in range(pools * dim)]
        assert found.shape == (rows, pools, dim)
        assert found.ravel().tolist() == want, tensor


@pytest.mark.parametrize("order", ["LBHNC", "LBNHC"])
def test_keys_then_values_of_unlike_sizes(library: Library, order: str) -> None:
    plane = page(library, "mimo-v2-flash", f"order={order},tp=2", "sliding")
    shape = {"LBHNC": ("head", "token"), "LBNHC": ("token", "head")}[order]
    for tensor, at, width in (("k", 0, 192), ("v", 384, 128)):
        found = offsets(plane, tensor, *shape, "dim").reshape(4 * 16, width)
        assert found.tolist() == [[640 * row + at + 2 * n for n in range(width)] for row in range(prod((4, 16)))]


def test_parts_of_a_storage_are_numbered_in_its_order(library: Library) -> None:
    """All keys before all values, as the storage says it."""
    side = bind(library, library.model("qwen3-0.6b"), "engine=gaudi,tp=1")
    (unit,) = place(side, side.workers[0])
    assert [(part.name, part.first) for part in unit.parts] == [("k", 0), ("v", len(unit.layers))]
