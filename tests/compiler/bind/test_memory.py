"""The memory of a cache: declared by an engine's file or a side, kept in a plan, never shared with another memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.layouts.shrink import thinned

from kvplan.compiler.api import compile_bound, compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check import oracle
from kvplan.compiler.errors import BadInput, ProofFailed, Refused
from kvplan.compiler.placement.place import place
from kvplan.compiler.placement.placed import placed
from kvplan.compiler.prove.prove import prove
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.plan.digest import sealed
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files.loader import parse
from kvplan.plan.files.numbers import check_numbers
from kvplan.plan.types import MEMORIES

MODEL, SPARSE = "gpt-oss-20b", "deepseek-v3.2"


@pytest.fixture(scope="module")
def library() -> Library:
    return load()


def side(library: Library, text: str, model: str = MODEL) -> BoundSide:
    return bind(library, thinned(library.model(model)), text)


def memories(found: BoundSide) -> dict[str, str]:
    return {cache.name: cache.memory for cache in found.caches}


@pytest.mark.parametrize("word", MEMORIES)
def test_a_side_says_where_a_cache_lies(library: Library, word: str) -> None:
    found = side(library, f"engine=custom,tp=1,memory.full={word}")
    assert memories(found) == {"full": word, "sliding": ""}
    assert found.key == f"engine=custom,tp=1,memory.full={word}"
    assert memories(side(library, "engine=custom,tp=1")) == {"full": "", "sliding": ""}


@pytest.mark.parametrize(
    ("text", "code", "help"),
    [
        ("memory.ful=host", "S005", "did you mean 'memory.full'?"),
        ("memory.full=hots", "S009", "did you mean 'host'?"),
        ("memory.full=DRAM", "S009", "allowed: host, device, device+host, host+device"),
        ("memory.full=host/device", "S003", "give one value"),
    ],
)
def test_what_is_no_cache_or_no_memory(library: Library, text: str, code: str, help: str) -> None:
    with pytest.raises(BadInput) as raised:
        side(library, f"engine=custom,tp=1,{text}")
    assert (raised.value.code, raised.value.help) == (code, help)


def own(folder: Path, rules: str) -> Library:
    """The library with an engine `mine`, which is `custom` with these rules for memory."""
    (folder / "engines").mkdir()
    keys = (
        "kvplan: 1\nengine: mine\nextends: custom\noptions:\n  far: {type: name, default: near, values: [near, far]}\n"
    )
    (folder / "engines" / "mine.yaml").write_text(f"{keys}memory: {rules}\n")
    return load((), [folder])


def test_an_engine_says_where_its_caches_lie(tmp_path: Path) -> None:
    found = own(tmp_path, "{gqa: \"'host' if far == 'far' else ''\", default: \"'device'\"}")
    assert memories(side(found, "engine=mine,tp=1")) == {"full": "", "sliding": ""}
    assert memories(side(found, "engine=mine,tp=1,far=far")) == {"full": "host", "sliding": "host"}
    states = side(found, "engine=mine,tp=1,far=far", "nemotron-3-nano-30b")
    assert memories(states) == {"attention": "host", "mamba": "device"}


def test_a_side_s_word_goes_before_its_engine_s(tmp_path: Path) -> None:
    found = own(tmp_path, "{default: \"'host' if far == 'far' else 'device'\"}")
    other = side(found, "engine=mine,tp=1,far=far,memory.full=device")
    assert memories(other) == {"full": "device", "sliding": "host"}
    assert other.key == "engine=mine,tp=1,far=far,memory.full=device"
    same = side(found, "engine=mine,tp=1,far=far,memory.full=host")
    assert same.key == "engine=mine,tp=1,far=far"


def test_an_option_that_moves_caches_between_memories_alone_names_another_side(tmp_path: Path) -> None:
    found = own(tmp_path, "{default: \"'host' if given(far) else ''\"}")
    assert side(found, "engine=mine,tp=1,far=near").key == "engine=mine,tp=1,far=near"


def test_a_rule_that_gives_no_memory(tmp_path: Path) -> None:
    with pytest.raises(Refused) as raised:
        side(own(tmp_path, '{default: "far"}'), "engine=mine,tp=1")
    assert raised.value.code == "C114"
    assert raised.value.message == "`memory` of mine comes out as 'near' for 'full'"


def test_a_rule_with_unknown_names_is_reported_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(DslError) as raised:
        own(tmp_path, "{nothing: \"'host'\", default: pages}").engine("mine")
    assert sorted(one.code for one in raised.value.diagnostics) == ["E005", "K008"]


FORMS = ("by_cache", "by_page", "by_tokens", "by_retention")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("overlay", ["false", "true"])
def test_caches_of_unlike_memories_share_no_blocks(library: Library, form: str, overlay: str) -> None:
    text = f"engine=custom,tp=2,form={form},overlay={overlay}"
    found = side(library, f"{text},memory.attention=host", SPARSE)
    where = memories(found)
    assert len({*where.values()}) == 2
    for group in found.groups:
        assert len({where[name] for name, _ in group.members}) == 1
    arenas = [{where[name] for group in found.groups if group.arena == arena for name, _ in group.members}
              for arena in {group.arena for group in found.groups}]  # fmt: skip
    assert all(len(some) == 1 for some in arenas)


@pytest.mark.parametrize("rows", ["own", "shared", "longest"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("model", [SPARSE, "nemotron-3-nano-30b", MODEL])
def test_blocks_of_one_memory_are_as_far_apart_as_without_the_others(
    library: Library, rows: str, form: str, model: str
) -> None:
    """Strides by naive indexing, which counts the caches of each memory by themselves."""
    plain = side(library, f"engine=custom,tp=2,form={form},rows={rows}", model)
    name = plain.caches[0].name
    found = side(library, f"engine=custom,tp=2,form={form},rows={rows},memory.{name}=host", model)
    for worker in found.workers:
        there = {
            (unit.cache, part.name): (part.page, part.stride) for unit in place(found, worker) for part in unit.parts
        }
        seen = {
            (plane.cache, plane.part): (plane.page, plane.stride) for plane in oracle.planes(found, worker).values()
        }
        assert there == seen


def test_a_plan_says_it_and_is_proved_with_it(library: Library) -> None:
    sides = "engine=custom,tp=1", "engine=custom,tp=2,memory.full=device+host,memory.sliding=host"
    made = compile_pair(library, MODEL, *sides)
    assert 'memory="device+host"' in made.text
    assert 'memory="host"' in made.text
    assert "in device memory, further blocks in host memory" in made.text
    plan = parse(made.text, "plan.py")
    assert plan == made.plan
    assert {entry.cache: entry.memory for entry in plan.decode.workers[0].planes} == {
        "full": "device+host", "sliding": "host"
    }  # fmt: skip
    assert all(not entry.memory for worker in plan.prefill.workers for entry in worker.planes)
    plain = compile_pair(library, MODEL, sides[0], "engine=custom,tp=2")
    assert "memory=" not in plain.text
    assert [read.table for read in plan.reads[0]] == [read.table for read in plain.plan.reads[0]]
    assert (plan.prefill.digest, plan.decode.digest == plain.plan.decode.digest) == (plain.plan.prefill.digest, False)


def test_a_plan_that_says_another_memory_is_refused(library: Library) -> None:
    both = [side(library, f"engine=custom,tp=1{more}") for more in ("", ",memory.full=host")]
    made = compile_bound(both[0], both[1])
    worker = made.plan.decode.workers[0]
    planes = tuple(replace(entry, memory="device") if entry.memory else entry for entry in worker.planes)
    decode = replace(made.plan.decode, workers=(replace(worker, planes=planes),))
    with pytest.raises(ProofFailed, match="the plan's decode side is not the side that was bound"):
        prove(replace(made.plan, decode=decode), placed(both[0]), placed(both[1]))
    with pytest.raises(PlanFormatError, match="decode side digest is"):
        parse(made.text.replace('memory="host"', 'memory="device"'), "plan.py")


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("disk", "lie in the memory 'disk', which is none of host, device"),
        ("host", r"planes of the group .* lie in different memories"),
    ],
)
def test_a_plan_whose_memories_make_no_sense_is_refused(library: Library, word: str, text: str) -> None:
    both = side(library, "engine=custom,tp=1,form=by_tokens", SPARSE)
    made = compile_bound(both, both).plan
    (worker,) = made.decode.workers
    planes = (replace(worker.planes[0], memory=word), *worker.planes[1:])
    other = sealed(replace(made, decode=replace(made.decode, workers=(replace(worker, planes=planes),))))
    with pytest.raises(PlanFormatError, match=text):
        check_numbers(other)
