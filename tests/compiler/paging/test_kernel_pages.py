"""Blocks that hold all layers, in which kernels see several pages: keys of a page's rows, then their scales."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import Library, load

MODEL = """kvplan: 1
model: pooled
title: Keys of an indexer, pooled by four tokens
dtype: bf16
query_heads: 4
layers: 3
caches:
  indexer:   {kind: compressed-indexer, layers: [0, 2], ratio: 4, page_align: PADDED}
  attention: {kind: mla, layers: [0, 2], latent: 512, rope: 0}
"""
KEY, SCALE = 128, 4


def with_padding(folder: Path, padded: int) -> Library:
    path = folder / "pooled.yaml"
    path.write_text(MODEL.replace("PADDED", str(padded)))
    return load([path])


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return with_padding(tmp_path_factory.mktemp("layouts"), 1)


@pytest.mark.parametrize(("block", "rows"), [(128, 32), (256, 64), (384, 32), (512, 64), (640, 32)])
def test_a_page_has_the_keys_of_its_rows_then_their_scales(library: Library, block: int, rows: int) -> None:
    """Kernels take pages of 32 or 64 rows, of the two the larger one that divides a block."""
    side = f"order=BLHNC,block={block}"
    planes = compile_pair(library, "pooled", side, side).plan.decode.workers[0].planes
    views = {view.tensor: view for plane in planes if plane.cache == "indexer" for view in plane.views}
    pages = (f"token/{rows}", block // 4 // rows, rows * (KEY + SCALE))
    assert [axis for axis in views["k"].axes if "token" in axis[0]] == [pages, ("token", rows, KEY)]
    assert [axis for axis in views["scale"].axes if "token" in axis[0]] == [pages, ("token", rows, SCALE)]
    assert views["scale"].offset - views["k"].offset == rows * KEY


@pytest.mark.parametrize(("prefill", "decode"), [(384, 256), (256, 640), (512, 384)])
def test_rows_move_between_blocks_that_are_divided_otherwise(library: Library, prefill: int, decode: int) -> None:
    made = compile_pair(library, "pooled", f"order=BLHNC,block={prefill}", f"tp=2,order=BLHNC,block={decode}")
    for end in (256, 1000):
        request = sample_request(made.prefill, made.decode, (0, end), end)
        report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
        assert report.right, report.text()
        assert report.bytes


def test_padded_pages_are_not_divided(tmp_path: Path) -> None:
    padded = with_padding(tmp_path, 576)
    with pytest.raises(Refused, match=r"C110.*a block of 512 is one page"):
        bind(padded, padded.model("pooled"), "order=BLHNC,block=512")
