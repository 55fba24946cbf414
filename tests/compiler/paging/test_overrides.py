"""Every derived value that a side gives is redundant, moves something, or is refused: for every engine and order."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from tests.layouts.sweep import POOL
from tests.shares import share, with_rest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.digests import side as digest
from kvplan.compiler.errors import Refused
from kvplan.compiler.placement.place import place
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.placement.sides import plan_side
from kvplan.compiler.placement.tree import BodyLoop, Tree
from kvplan.dsl.library import Library, load

HEAD = "kvplan: 1\nmodel: {}\ntitle: {}\ndtype: bf16\nquery_heads: 8\nlayers: 4\n"
MODELS = {
    "plain": "caches: {attention: {kind: gqa, layers: all, heads: 8, dim: 16}}",
    "windows": """caches:
  full:    {kind: gqa, layers: [0], heads: 4, dim: 32}
  sliding: {kind: gqa, layers: [1, 2, 3], heads: 8, dim: 16, window: 64}""",
    "hybrid": """caches:
  attention: {kind: gqa, layers: [0, 2], heads: 4, dim: 16}
  states:    {kind: mamba2, layers: [1, 3], heads: 8, head_dim: 4, state: 8, groups: 1, conv: 4}""",
}
VLLM = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
LEGACY = ("planes", "planes-by-token", "k-then-v", "halves", "rows-inside", "k-then-v-inside", "halves-inside")
SIDES = {
    "vllm": [f"order={order}" for order in VLLM],
    "vllm-legacy": [f"place={place}" for place in LEGACY],
    "vllm-cpu": [f"kv_dtype=bf16,isa={isa},block={block}" for isa, block in product(("VEC", "AMX"), (32, 256))],
    "sglang": ["order=nhd,block=64", "order=hnd,block=64", "order=vectorized_5d,block=64"],
    "gaudi": ["kv_dtype=bf16,form=by_tokens", "kv_dtype=bf16,form=by_page"],
    "ascend": ["kv_dtype=bf16,order=nd", "kv_dtype=bf16,order=nz"],
    "rbln": ["block=1024", "block=4096"],
    "store": ["block=64", "block=256"],
    "custom": [f"order={order},rows={rows}" for order, rows in product(VLLM, ("own", "shared", "longest"))],
}
VALUES = (1, 8, 16, 48, 128, 3000, 1 << 17)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("overridden")
    for name, text in MODELS.items():
        (folder / f"{name}.yaml").write_text(HEAD.format(name, name) + text)
    return load(sorted(folder.iterdir()))


def bound(library: Library, model: str, side: str) -> BoundSide | Refused:
    try:
        side_ = bind(library, library.model(model), side)
        _ = [place(side_, worker) for worker in side_.workers]
    except Refused as refused:
        return refused
    return side_


def laid_out(side: BoundSide) -> str:
    """The digest of where a side keeps things; what it is called is not in it."""
    return digest(plan_side(placed(side)))


CASES = [(engine, side, model) for engine, sides in SIDES.items() for side in sides for model in MODELS]


def test_every_shipped_engine_is_here(library: Library) -> None:
    # Items lie in one way only, and are no cache of these models.
    assert {*SIDES} == {*library.engines} - {POOL}


@with_rest("eighth")
@pytest.mark.parametrize(("engine", "side", "model"), CASES)
def test_what_is_given_moves_something_or_is_refused(
    library: Library, engine: str, side: str, model: str, rest: bool
) -> None:
    """Every eighth value, another one first from case to case; the others in `make test-all`."""
    text, begin = f"engine={engine},{side}", CASES.index((engine, side, model))
    plain = bound(library, model, text)
    if isinstance(plain, Refused):
        assert plain.code in ("C110", "C121", "C118")
        return
    where = laid_out(plain)
    for name, value in product(library.engine(engine).derive, share(VALUES, begin, 8, rest)):
        given = bound(library, model, f"{text},{name}={value}")
        if isinstance(given, Refused):
            assert given.code in ("C104", "C107", "C110", "C113", "C114", "C116", "C118", "C138", "C139"), (name, value)
        elif f"{name}={value}" in given.key.split(","):
            assert laid_out(given) != where, (name, value)
        else:
            assert given == plain, (name, value)


def test_each_that_is_not_fixed_can_be_given_somewhere(library: Library) -> None:
    """Except options without a choice: a ratio follows from the other two, and no model here interleaves tokens."""
    # The kernels of RBLN take none of these small models.
    engines, without = sorted({*SIDES} - {"rbln"}), {"ratio", "interleave"}
    free = [(e, name) for e in engines for name, doc in library.engine(e).docs.items() if not doc.fixed]
    assert [one for one in free if one[1] not in without and not _taken(library, *one)] == []


def _taken(library: Library, engine: str, name: str) -> bool:
    """Whether some model on some side of an engine takes some value."""
    texts = ((model, f"engine={engine},{side},{name}={v}") for model, side, v in product(MODELS, SIDES[engine], VALUES))
    return any(not isinstance(bound(library, *text), Refused) for text in texts)


PAGE = 16 * 8 * 2 * 16 * 2


@pytest.mark.parametrize(("order", "tp", "padded"), list(product(VLLM, (1, 2, 8), (0, PAGE + 512))))
def test_a_padded_page_lies_where_the_engine_puts_it(library: Library, order: str, tp: int, padded: int) -> None:
    """Strides as vLLM computes them, walking an order from its end: what one layer has in one block is raised to the
    padded page, which is legal where a head of other layers or blocks lies between two of its heads only if there is
    one head."""
    given = f",page_size_padded={padded}" if padded else ""
    side = bound(library, "plain", f"tp={tp},order={order}{given}")
    heads = 8 // tp
    if padded and (order == "LHBNC" or (order == "BHLNC" and heads > 1)):
        assert isinstance(side, Refused)
        assert side.code in ("C107", "C110")
        return
    assert not isinstance(side, Refused)
    page = max(PAGE // tp, padded)
    ((unit,),) = [place(side, side.workers[0])]
    (part,) = unit.parts
    blocks = {"LBHNC": page, "LBNHC": page, "LHBNC": PAGE // 8}
    assert part.stride == blocks.get(order, 4 * page)
    if order in ("BLHNC", "BLNHC") or (order == "BHLNC" and padded):
        assert step_of_layers(part.body) == page


def step_of_layers(body: tuple[Tree, ...]) -> int:
    (loop,) = body
    assert isinstance(loop, BodyLoop)
    return loop.step if loop.axis == "layer" else step_of_layers(loop.body)


@pytest.mark.parametrize(("order", "tp"), [("BLHNC", 1), ("BLNHC", 2), ("BHLNC", 8), ("LBHNC", 1)])
def test_padded_pages_are_moved_as_naive_indexing_has_them(library: Library, order: str, tp: int) -> None:
    padded = f"page_size_padded={PAGE + 512}"
    made = compile_pair(library, "plain", f"tp={tp},order={order},{padded}", f"tp=2,{padded}")
    request = sample_request(made.prefill, made.decode, (0, 40), 3)
    report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
    assert report.right, report.text()
    assert report.bytes


@pytest.mark.parametrize(
    "text", ["page_size_padded=1", "order=BLHNC,page_size_padded=1", "order=BLHNC,block_outermost=1"]
)
def test_what_the_engine_would_not_do_is_refused_with_the_reason(library: Library, text: str) -> None:
    with pytest.raises(Refused, match=r"a page .* 8192 bytes|it follows from order"):
        bind(library, library.model("plain"), text)


def test_one_value_may_be_given_twice_over(library: Library) -> None:
    plain = bind(library, library.model("hybrid"), "tp=1")
    same = bind(library, library.model("hybrid"), f"tp=1,tokens.attention={plain.caches[0].tokens}")
    assert same == plain
    assert not same.notes


def test_a_value_for_the_cache_that_does_not_have_it_moves_nothing(library: Library) -> None:
    with pytest.raises(Refused, match=r"tokens.states=64 moves nothing on this side") as caught:
        bind(library, library.model("hybrid"), "tp=1,tokens.states=64")
    assert caught.value.code == "C139"


def test_groups_that_overlay_each_other_keep_blocks_of_one_size(library: Library) -> None:
    text = "tp=1,page_size_padded"
    with pytest.raises(Refused, match="different block sizes") as caught:
        bind(library, library.model("windows"), f"{text}.full=16384")
    assert caught.value.code == "C139"
    side = bind(library, library.model("windows"), f"{text}=16384")
    assert {part.stride for unit in place(side, side.workers[0]) for part in unit.parts} == {16384}


ENGINE = """kvplan: 1
engine: split
extends: vllm
title: Layers inside blocks, in two pieces
storage: {gqa: pieces}
own: {gqa: {pieces: "block { layer { k[token head dim] } layer { v[token head dim] } }"}}
groups: {page: {gqa: 65536}}
"""


def test_a_rule_that_pads_what_lies_in_pieces_is_refused(tmp_path: Path, library: Library) -> None:
    (tmp_path / "split.yaml").write_text(ENGINE)
    (tmp_path / "plain.yaml").write_text(HEAD.format("plain", "plain") + MODELS["plain"])
    found = load([tmp_path / "split.yaml", tmp_path / "plain.yaml"])
    with pytest.raises(Refused, match="its layers in pieces") as caught:
        place(side := bind(found, found.model("plain"), "engine=split,order=BLHNC"), side.workers[0])
    assert caught.value.code == "C107"


LATE = """
kvplan: 1
model: late
title: Late
dtype: bf16
query_heads: 8
layers: 4
caches:
  full:    {kind: gqa, layers: [3], heads: 4, dim: 32}
  sliding: {kind: gqa, layers: [0, 1, 2], heads: 8, dim: 16, window: 64}
"""


@pytest.mark.parametrize("pipeline", ["", ",pp=2"])
def test_groups_that_overlay_each_other_are_seen_on_every_stage(tmp_path: Path, pipeline: str) -> None:
    """On a stage each cache may be alone."""
    (tmp_path / "late.yaml").write_text(LATE)
    found = load((tmp_path / "late.yaml",))
    with pytest.raises(Refused, match="different block sizes") as caught:
        bind(found, found.model("late"), f"order=LBHNC,page_size_padded.sliding=16384{pipeline}")
    assert caught.value.code == "C139"
