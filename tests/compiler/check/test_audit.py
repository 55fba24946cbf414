"""The audit says OK to right copies, however they are cut, and names the first byte of every way of being wrong."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, note, settings
from tests.layouts import shrink
from tests.paths import ROOT
from tests.random_sides.draw import Case, cases
from tests.random_sides.sides import cache, group, side, tensor
from tests.requests import ask, block_table

from kvplan.compiler.api import Compiled, compile_bound
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.check.audit.audit import Survey, audit, survey
from kvplan.compiler.check.audit.verdict import Verdict
from kvplan.compiler.check.request import Copy
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import BadInput, Refused
from kvplan.dsl.library import load
from kvplan.plan.block_tables import Slot

TEXT = "layer { block { head { token { k[dim] } pad(2) } } }"
STRIDE, ROW = 20, 10
# Four tokens of a head are 8 bytes, then 2 of padding; a decode page has the two heads that two prefill workers hold.
# Block 0 of decode holds tokens 0-3, of which 0 is not asked for; block 6 tokens 4-7, of which 7 lies beyond.
REQUEST = ask((1, 7), {"c": block_table(0, (5, 6)), "s": Slot(2, 7)}, {"c": block_table(0, (0, 6)), "s": Slot(1, 7)})


def bound(tp: int) -> BoundSide:
    c = cache(TEXT, tensor("k", 1, {"head": "tp"}, head=2, token=0, dim=2), layers=(0, 2), kernel=4)
    s = cache("layer { block { z[st] } }", tensor("z", 4, st=3), name="s", layers=(1,))
    return side([c, s], [group((c, c.layers)), group((s, s.layers))], tp=tp)


def good() -> list[Copy]:
    """The state, then tokens 1-3 of block 5 to block 0 and 4-6 of block 6 to block 6, for both layers and heads."""
    found = [Copy(0, "s.1", 24, 0, "s.1", 12, 12)]
    for layer in (0, 2):
        for head in (0, 1):
            name = f"c.{layer}"
            found.append(Copy(head, name, 5 * ROW + 2, 0, name, head * ROW + 2, 6))
            found.append(Copy(head, name, 6 * ROW, 0, name, 6 * STRIDE + head * ROW, 6))
    return found


def run(made: list[Copy], **more: Any) -> Verdict:
    return audit(bound(2), bound(1), REQUEST, made, **more)


def counts(said: Verdict) -> dict[str, int]:
    words = ("missing", "double", "wrong", "before", "outside", "beyond", "padding")
    return {word: getattr(said, word) for word in words if getattr(said, word)}


def test_right_copies_are_right() -> None:
    said = run(good())
    assert (said.right, said.findings, counts(said)) == (True, (), {})
    assert (said.workers, said.planes, said.copies, said.bytes) == (1, 3, 9, 2 * 2 * 12 + 12)
    assert said.text() == (
        "OK: 60 needed bytes in 3 KV cache tensors of 1 decode worker, 9 copies: "
        "each written once, from its own coordinate"
    )


@pytest.mark.parametrize("number", range(9))
def test_a_dropped_copy_is_missing_and_a_doubled_one_double(number: int) -> None:
    made, one = good(), good()[number]
    assert counts(run([*made[:number], *made[number + 1 :]])) == {"missing": one.bytes}
    doubled = run([*made, one])
    assert counts(doubled) == {"double": one.bytes}
    assert doubled.findings[0].copies == (number, 9)


def test_an_empty_list_misses_everything() -> None:
    said = run([])
    assert counts(said) == {"missing": said.bytes}
    assert sorted(f.bytes for f in said.findings) == [12, 48]
    assert "is not written" in said.text()


def change(number: int, **new: Any) -> list[Copy]:
    made = good()
    made[number] = made[number]._replace(**new)
    return made


@pytest.mark.parametrize(
    ("made", "words", "count"),
    [
        (change(2, from_offset=6 * ROW + 2), "layer 0 · c.k · head 0 · token 4 · dim 0: holds the same of token 5", 6),
        (change(1, from_worker=1), "layer 0 · c.k · head 0 · token 1 · dim 0: holds the same of head 1", 6),
        (change(1, from_plane="c.2"), "layer 0 · c.k · head 0 · token 1 · dim 0: holds the same of layer 2", 6),
        (change(1, from_plane="s.1", from_offset=24),
         "layer 0 · c.k · head 0 · token 1 · dim 0: holds s.z st 0 of layer 1", 6),
        (change(1, from_offset=0),
         "layer 0 · c.k · head 0 · token 1 · dim 0: holds a byte outside the request's blocks", 6),
        (change(1, from_offset=5 * ROW + 8, bytes=2), "layer 0 · c.k · head 0 · token 1 · dim 0: holds padding", 2),
    ],
)  # fmt: skip
def test_a_wrong_byte_is_named_with_what_it_holds(made: list[Copy], words: str, count: int) -> None:
    said = run(made)
    assert said.wrong == count
    first = next(f for f in said.findings if f.fault == "wrong")
    assert (first.text, first.bytes) == (words, count)


def test_swapped_heads_are_one_finding_each_way() -> None:
    made = [c._replace(from_worker=1 - c.from_worker) if c.to_plane[0] == "c" else c for c in good()]
    said = run(made)
    assert counts(said) == {"wrong": 48}
    assert [(f.text.rpartition("holds")[2], f.bytes) for f in said.findings] == [
        (" the same of head 1", 24),
        (" the same of head 0", 24),
    ]


def test_before_the_first_token_nothing_may_be_written() -> None:
    said = run(change(1, from_offset=5 * ROW, to_offset=0, bytes=8))
    assert counts(said) == {"before": 2}
    assert said.findings[0].line() == (
        "decode worker 0 · layer 0 · c.k · head 0 · token 0 · dim 0: "
        "is written, and lies before the first token asked for; 2 bytes like it (copy 1)"
    )


def test_whole_blocks_padding_and_tokens_beyond_the_end_may_be_written() -> None:
    made = change(2, bytes=10)
    said = run(made)
    assert (said.right, counts(said)) == (True, {"beyond": 2, "padding": 2})
    assert "2 bytes beyond what is needed written, too; 2 bytes of padding written, too" in said.text()


def test_a_row_that_is_not_full_is_not_needed() -> None:
    c = cache("layer { block { token { k } } }", tensor("k", 1, token=0), kernel=4)
    rows = replace(c, tensors=tuple(replace(t, tokens_per_row=4) for t in c.tensors))
    both, table = (side([rows]), side([rows])), {"c": block_table(0, (1,))}
    assert audit(*both, ask((0, 3), table, table), []).bytes == 0
    assert audit(*both, ask((0, 4), table, table), []).missing == 1


@pytest.mark.parametrize("block", [1, 5, 7, 1000])
def test_another_block_is_outside(block: int) -> None:
    said = run([*good(), Copy(0, "c.2", 50, 0, "c.2", block * STRIDE + 4, 6)])
    assert counts(said) == {"outside": 6}
    assert said.findings[0].text == (
        f"plane c.2 · offset {block * STRIDE + 4:,}: is written, and lies in no block of the request"
    )
    assert said.findings[0].copies == (9,)


def test_what_a_long_copy_writes_outside_is_counted_from_its_first_byte() -> None:
    said = run([Copy(0, "c.0", 0, 0, "c.0", 2, 2**47)])
    assert said.outside == 2**47 - 18 - STRIDE
    assert next(f for f in said.findings if f.fault == "outside").offset == STRIDE


def test_findings_are_limited_and_the_rest_is_counted() -> None:
    made = [c._replace(from_worker=1 - c.from_worker) if c.to_plane[0] == "c" else c for c in good()]
    said = run(made, limit=0)
    assert (len(said.findings), said.others) == (1, 24)
    assert said.text().endswith("24 bytes in other ways")


def test_a_whole_hit_needs_nothing_and_its_state_may_not_be_written() -> None:
    request = ask((7, 7), REQUEST.prefill, REQUEST.decode)
    assert audit(bound(2), bound(1), request, []).right
    assert counts(audit(bound(2), bound(1), request, good()[:1])) == {"before": 12}


@pytest.mark.parametrize(
    ("new", "code"),
    [
        ({"to_worker": 1}, "Q033"), ({"from_worker": 2}, "Q033"), ({"to_plane": "c.1"}, "Q034"),
        ({"from_plane": "nowhere"}, "Q034"), ({"bytes": 0}, "Q032"), ({"bytes": -1}, "Q032"), ({"bytes": True}, "Q032"),
        ({"to_offset": -1}, "Q032"), ({"from_offset": 1.0}, "Q032"), ({"to_offset": 2**48 + 1}, "Q032"),
        ({"to_worker": "0"}, "Q032"), ({"from_plane": None}, "Q031"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_with_its_index(new: dict[str, Any], code: str) -> None:
    with pytest.raises(BadInput) as caught:
        audit(bound(2), bound(1), REQUEST, change(3, **new))
    assert caught.value.code == code
    assert "copies[3]" in caught.value.message


MODELS = [
    ("llama-3.1-8b", "tp=2", "tp=4", (0, 40)),
    ("llama-3.1-8b", "tp=4,order=nhd", "tp=2,pp=2,block=32", (5, 40)),
    ("llama-3.1-8b", "tp=4,order=BLHNC", "tp=2,order=LHBNC", (5, 40)),
    ("deepseek-v3", "tp=8", "tp=2", (3, 70)),
    ("granite-4.0-h-small", "tp=1", "tp=2", (0, 100)),
    ("nemotron-3-nano-30b", "tp=2", "tp=2", (0, 100)),
]


def compiled(model: str, prefill: str, decode: str) -> Compiled:
    """A pair of sides of a model with few of its layers."""
    library = load()
    return shrink.compiled(library, shrink.thinned(library.model(model)), prefill, decode)


def joined(made: list[Copy]) -> list[Copy]:
    """Copies in the order of a trace with neighbours on both sides made one."""
    found: list[Copy] = []
    for c in made:
        last = found[-1] if found else None
        if last and last[:2] == c[:2] and last[3:5] == c[3:5]:
            here, there = c.from_offset - last.from_offset, c.to_offset - last.to_offset
            if here == there == last.bytes:
                found[-1] = last._replace(bytes=last.bytes + c.bytes)
                continue
        found.append(c)
    return found


@pytest.mark.parametrize(("model", "prefill", "decode", "tokens"), MODELS)
def test_a_trace_is_right(model: str, prefill: str, decode: str, tokens: tuple[int, int]) -> None:
    made = compiled(model, prefill, decode)
    request = sample_request(made.prefill, made.decode, tokens, seed=3)
    said = audit(made.prefill, made.decode, request, copies(made.plan, request))
    assert said.right, said.text()
    assert said.bytes > 0
    assert counts(said) == {}


def test_neighbours_may_be_joined_across_pages() -> None:
    made = compiled("llama-3.1-8b", "tp=2", "tp=2")
    tables = {"attention": block_table(0, (4, 5, 6, 9))}
    request = ask((0, 60), tables, tables)
    apart = copies(made.plan, request)
    together = joined(apart)
    assert max(c.bytes for c in together) > 2 * max(c.bytes for c in apart[:3])
    assert audit(made.prefill, made.decode, request, together).right
    shifted = [c._replace(from_offset=c.from_offset + 16 * 1024) for c in together]
    assert audit(made.prefill, made.decode, request, shifted).wrong > 0


def test_tails_behind_pages_may_be_copied_from_tails_only() -> None:
    text = "layer { block { k[dim] } }"
    prefill, decode = (side([cache(text, tensor("k", 1, dim=6), stride=8)]) for _ in range(2))
    request = ask((0, 4), {"c": Slot(1, 4)}, {"c": Slot(2, 4)})
    assert counts(audit(prefill, decode, request, [Copy(0, "c.0", 8, 0, "c.0", 16, 8)])) == {"padding": 2}
    tail = [Copy(0, "c.0", 8, 0, "c.0", 16, 6), Copy(0, "c.0", 8, 0, "c.0", 22, 2)]
    assert counts(audit(prefill, decode, request, tail)) == {"outside": 2}


def test_b_and_c_of_one_group_are_not_shared_out() -> None:
    """A connector that cuts B and C of a single group as if each worker had a part of its own."""
    made = compiled("granite-4.0-h-small", "tp=1", "tp=2")
    request = sample_request(made.prefill, made.decode, (0, 100), seed=5)
    found = survey(made.prefill, made.decode, request)
    rest = [c for c in copies(made.plan, request) if not c.to_plane.startswith("mamba")]
    said = audit(made.prefill, made.decode, request, [*rest, *states(found, lambda _: (49_152, 49_920))])
    assert said.right, said.text()
    said = audit(made.prefill, made.decode, request, [*rest, *states(found, shared_out)], limit=20)
    layers = sum(plane.startswith("mamba") for _, plane in found.decode) // 2
    assert counts(said) == {"wrong": 3 * 768 * layers}
    lines = [f.line() for f in said.findings]
    assert lines[0].startswith(
        "decode worker 0 · layer 0 · mamba.c · bc_group 0 · state 0 · tap 0 · byte 0: "
        "holds mamba.ssm head 0 · head_dim 0 · state 0 of the same layer; "
    )
    b = "decode worker 1 · layer 0 · mamba.b · bc_group 0 · state 0 · tap 0 · byte 0"
    assert (
        f"{b}: holds mamba.c bc_group 0 · state 0 · tap 0 of the same layer; {768 * layers:,} bytes like it"
        in "\n".join(lines)
    )
    assert not any(line.startswith("decode worker 0") and "mamba.b ·" in line for line in lines)


def shared_out(rank: int) -> tuple[int, int]:
    """The first bytes of B and C that such a connector reads for a worker."""
    return 49_152 + 768 * rank, 50_688 + 768 * rank


def states(found: Survey, b_and_c: Callable[[int], tuple[int, int]]) -> list[Copy]:
    """Every state by hand: x in shares of 24,576 bytes, B and C of 768 bytes, then 64 heads of 16,384 bytes."""
    made = []
    for (rank, plane), at in found.decode.items():
        if not plane.startswith("mamba"):
            continue
        source = found.prefill[0, plane]
        start, end = (int(one.pages.ids[0]) * one.plane.stride for one in (source, at))
        parts = [(24_576 * rank, 0, 24_576), *zip(b_and_c(rank), (24_576, 25_344), (768, 768), strict=True)]
        parts.append((50_688 + rank * 64 * 16_384, 26_112, 64 * 16_384))
        made += [Copy(0, plane, start + a, rank, plane, end + b, n) for a, b, n in parts]
    return made


@settings(max_examples=8)
@given(cases())
def test_whatever_a_plan_copies_is_right_and_a_copy_less_is_not(case: Case) -> None:
    note("\n".join([f"seed {case.seed}", *case.texts]))
    made = copies(compile_bound(case.prefill, case.decode).plan, case.request)
    said = audit(case.prefill, case.decode, case.request, made)
    assert said.right, said.text()
    assert counts(said).keys() <= {"padding"}
    for number in {0, len(made) // 2, len(made) - 1} if made else set():
        fewer = audit(case.prefill, case.decode, case.request, [*made[:number], *made[number + 1 :]])
        assert 0 < fewer.missing <= made[number].bytes


def test_unlike_types_are_refused() -> None:
    made = compiled("llama-3.1-8b", "tp=1", "tp=1")
    other = compiled("llama-3.1-8b", "tp=1,kv_dtype=fp8", "tp=1,kv_dtype=fp8").decode
    with pytest.raises(Refused, match="C134"):
        audit(made.prefill, other, sample_request(made.prefill, other, (0, 20)), [])


def test_the_example_of_the_docs_runs() -> None:
    page = (ROOT / "docs" / "audit.md").read_text()
    found = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(found) == 1
    space: dict[str, object] = {}
    for block in found:
        exec(compile(block, "docs/audit.md", "exec"), space)
