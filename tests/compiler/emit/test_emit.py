"""Emit and parse: the text is what a formatter leaves alone, comes back equal, and nothing else is accepted."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from tests.paths import ROOT, TESTS

from kvplan.compiler.api import compile_pair
from kvplan.compiler.cost.cost import Moves, PlanCost, plan_cost
from kvplan.compiler.emit.emit import emit
from kvplan.compiler.emit.header import docstring
from kvplan.compiler.emit.names import apart, constant
from kvplan.dsl.library import load
from kvplan.plan import digest
from kvplan.plan.errors import BlockTableError, PlanFormatError
from kvplan.plan.files.loader import parse
from kvplan.plan.match import MatchRule
from kvplan.plan.types import Blocks, GroupPair, Needs, Plan

SPEC = importlib.util.spec_from_file_location("plans_by_hand", TESTS / "compiler/plans.py")
assert SPEC
assert SPEC.loader
plans = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(plans)

RUFF = [sys.executable, "-m", "ruff"]
COMMAND = "kvplan compile toy-8b --prefill tp=4 --decode tp=2"
CASES = {
    "plain": {},
    "unlike blocks": {"kernels": (16, 48), "ratios": (3, 1), "with_state": True},
    "ratios": {"prefill": 8, "decode": 1, "ratios": (131, 261), "with_state": True},
    "shared out": {"prefill": 2, "decode": 2, "ratios": (4, 1), "shards": 2},
}


def text_of(plan: Plan) -> str:
    return emit(plan, plan_cost(plan, proved="Proved: every byte once."), COMMAND)


@pytest.fixture(params=list(CASES.values()), ids=list(CASES))
def plan(request: pytest.FixtureRequest) -> Plan:
    return plans.plan(**request.param)


def test_a_plan_comes_back_equal(plan):
    again = parse(text_of(plan), "x.py")
    assert again == plan
    assert text_of(again) == text_of(plan)


def test_ruff_leaves_it_alone(plan, tmp_path):
    path = tmp_path / "plan.py"
    path.write_text(text_of(plan))
    config = str(ROOT / "pyproject.toml")
    for command in (["format", "--check"], ["check"]):
        done = subprocess.run([*RUFF, *command, "--config", config, str(path)], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_the_header_says_what_it_is():
    header = text_of(plans.plan(with_state=True)).split('"""')[1]
    assert " ".join(header.split()).startswith(
        "Toy 8B: prefill tp=4 -> decode tp=2. Emitted by kvplan from toy-8b, do not edit. "
        "https://github.com/kvplan/kvplan/blob/main/docs/plans.md explains it. To make it again, compile "
    )
    for words in (
        f"\n    {COMMAND}\n",
        "\n    prefill  |     head 0    |     head 1    |  ",
        " 16,384 B\n",
        "decode workers 0-1, attention: 67,108,864 B in 4,096 descriptors; 2 reads, together 64 spans of all layers "
        "for\n        each of 64 blocks\n",
        "decode workers 0-1, mamba.0: 1,326,080 B in 40 descriptors, for any number of tokens; 2 reads, together 40",
        "Exactly the tokens that decode\n    needs are written, or a whole last page where a request allows it",
        "Proved: every byte once.",
    ):
        assert words in header


@pytest.mark.parametrize(
    ("prefill", "decode", "whole"),
    [
        ("tp=2", "tp=2", True),
        ("tp=2", "tp=2,block=32", False),
        ("tp=2", "tp=2,order=nhd", False),
        ("tp=2", "tp=8", False),
        ("engine=sglang,tp=2", "engine=sglang,tp=2", False),  # pages of one token
    ],
)
def test_a_last_page_is_named_only_where_a_request_may_have_it_whole(prefill: str, decode: str, whole: bool):
    """Pages of one size whose heads come before tokens on both sides are one descriptor, a part of one is many."""
    text = compile_pair(load(), "llama-3.1-8b", prefill, decode).text
    assert ("a whole last page where a request allows it" in " ".join(text.split())) is whole


def test_odd_text_does_not_end_the_docstring():
    plan = digest.sealed(replace(plans.plan(), title='A """ \\ title'))
    assert parse(text_of(plan), "x.py").title == 'A """ \\ title'


def test_a_long_command_can_be_copied():
    command = "kvplan compile toy-8b --prefill tp=4," + "x" * 60 + " --decode tp=2," + "y" * 60
    plan = plans.plan()
    text = emit(plan, plan_cost(plan), command)
    assert text.startswith('r"""')
    assert "    kvplan compile toy-8b \\\n        --prefill tp=4," in text
    parse(text, "x.py")


def test_equal_figures_are_said_once():
    header = docstring(
        plans.plan(),
        PlanCost(tuple(Moves((0, 1), pair, "state", True, 1, 2, 2, 9) for pair in ("s.0", "s.1"))),
        "",
    )
    assert (
        "decode workers 0-1, s.0, s.1, each: 9 B in 2 descriptors, for any number of tokens; 1 read, 2 spans of"
        in header
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("page_rows=16)", "page_rows=32)", "digest"),
        ("tokens=16", "tokens=32", "digest"),
        ("bytes=16_384", "bytes=16_385", "digest"),
        ("GROUP_PAIRS = ", "import os\nGROUP_PAIRS = ", "kvplan writes nothing like"),
        ("GROUP_PAIRS = ", "print()\nGROUP_PAIRS = ", "kvplan writes nothing like"),
        ("GROUP_PAIRS = ", 'A = (__import__("os"),)\nGROUP_PAIRS = ', "a value is"),
        ("GROUP_PAIRS = ", "A = ().__class__\nGROUP_PAIRS = ", "a value is"),
        ("GROUP_PAIRS = ", 'A = tuple(*"a")\nGROUP_PAIRS = ', "a value is"),
        ("GROUP_PAIRS = ", "A: print() = ()\nGROUP_PAIRS = ", "kvplan writes nothing like"),
        ("GROUP_PAIRS = ", "A = (*(GroupPair(name) for name in \"ab\"),)\nGROUP_PAIRS = ", "written out"),
        ("GROUP_PAIRS = ", "A = (*(GroupPair(other) for other in (\"a\",)),)\nGROUP_PAIRS = ", "written out"),
        ("GROUP_PAIRS = ", "A = (*(GroupPair(name) for name in (\"a\",) if print()),)\nGROUP_PAIRS = ", "a value is"),
        ("import Group,", "import np, Group,", "does not need np"),
        ("def reads(", "@tuple\ndef reads(", "a function of a plan"),
        ("def reads()", "def reads(a=print())", "a function of a plan"),
        ("def prefill() -> Side", "def prefill() -> print()", "a function of a plan"),
        ("def reads()", "def more()", "a function of a plan"),
        ("def reads()", "async def reads()", "kvplan writes nothing like"),
        ("    return (", "    print()\n    return (", "kvplan writes nothing like"),
        ("reads=reads()", "reads=((reads(),),)", "needs Read"),
        ("prefill=prefill()", "prefill=decode()", "a value is"),
        ("GROUP_PAIRS = ", "PREFILL_PLANES = ()\nGROUP_PAIRS = ", "defined twice"),
        ("group_pairs=GROUP_PAIRS, reads", "", "not a plan"),
        ("format=3", "format=4", "format 4"),
        ("format=3,", "format=3, more=1,", "not a plan of this version"),
        ("\nPLAN = ", "\nPLAN_2 = ", "no PLAN"),
    ],
)  # fmt: skip
def test_anything_else_is_refused(old, new, why):
    text = text_of(plans.plan())
    changed = text.replace(old, new, 1) if old in text else text + "("
    with pytest.raises(PlanFormatError, match=why):
        parse(changed, "x.py")


def test_many_workers_stay_readable():
    base = plans.plan(8, 8)
    entry = base.prefill.workers[0].planes[0]
    workers = [
        replace(
            base.prefill.workers[0], planes=(replace(entry, loops=(("layer", plans.LAYERS, 1), ("head", (i,), 1))),)
        )
        for i in range(64)
    ]
    sides = [replace(side, workers=tuple(workers)) for side in (base.prefill, base.decode)]
    read = base.reads[0][0]
    reads = tuple(
        tuple(replace(read, worker=j % 64, table=plans.attention_table(i, 1, 16, 16, j)) for j in (i, i + 1))
        for i in range(64)
    )
    whole = replace(base, prefill=sides[0], decode=sides[1], reads=reads, notify=((),) * 64)
    text = text_of(digest.sealed(whole))
    assert text.count("\n") < 2000
    assert text.count(" Read(") == 128


def test_a_plan_needs_numpy_and_the_plan_types_only(tmp_path):
    path = tmp_path / "plan.py"
    path.write_text(text_of(plans.plan()))
    code = f"import runpy, sys; runpy.run_path({str(path)!r}); print([m for m in sys.modules if m[:6] == 'kvplan'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.replace("'", "").strip("[]\n").split(", "))
    assert loaded <= {
        "kvplan",
        "kvplan.plan",
        "kvplan.plan.errors",
        "kvplan.plan.needs",
        "kvplan.plan.types",
        "kvplan.plan.blocks",
    }


def test_an_old_plan_is_told_to_be_compiled_again():
    text = (
        "from kvplan.plan.types import Plan\n\ndef kv(first: int) -> Runs:\n    return first\n\nPLAN = Plan(format=1)\n"
    )
    with pytest.raises(PlanFormatError, match=r"plan format 1, this version reads 3: compile the plan again"):
        parse(text, "x.py")


def naive(group, table, shard, t):
    """(kernel block, token in it) of global token t, or None where another shard has it."""
    if t // group.chunk % group.shards != shard:
        return None
    local = sum(u // group.chunk % group.shards == shard for u in range(t))
    position, rest = divmod(local, group.tokens)
    return table[position] * group.ratio + rest // group.kernel, rest % group.kernel


@pytest.mark.parametrize(
    ("prefill", "decode"),
    [
        (plans.tokens(), plans.tokens()),
        (plans.tokens(kernel=16, ratio=131), plans.tokens(kernel=16, ratio=261)),
        (plans.tokens(kernel=32), plans.tokens(kernel=48, ratio=2)),
        (plans.tokens(kernel=16, ratio=4, shards=2, chunk=64), plans.tokens(kernel=32)),
        (plans.tokens(kernel=16, ratio=4, shards=2, chunk=1), plans.tokens(kernel=16)),
        (plans.tokens(kernel=16, shards=4, chunk=16), plans.tokens(kernel=32, ratio=2, shards=2, chunk=8)),
        (plans.tokens(kernel=16, ratio=3, shards=2, chunk=24), plans.tokens(kernel=16)),
        (plans.tokens(kernel=8, shards=2, chunk=48), plans.tokens(kernel=10, shards=3, chunk=7)),
    ],
)
@pytest.mark.parametrize(("first", "end"), [(0, 300), (17, 18), (33, 250), (40, 40)])
def test_matches_are_those_of_naive_indexing(prefill, decode, first, end):
    tables = [np.random.default_rng(1).permutation(64), np.random.default_rng(2).permutation(64)]
    for shards in [(p, d) for p in range(prefill.shards) for d in range(decode.shards)]:
        blocks = Blocks(0, tables[0]), Blocks(0, tables[1])
        runs = MatchRule(prefill, decode).runs((first, end), *blocks, shards)
        found = [
            ((pb, pt + i), (db, dt + i)) for pb, pt, db, dt, n in np.stack(runs, axis=1).tolist() for i in range(n)
        ]
        pairs = [
            (naive(prefill, tables[0], shards[0], t), naive(decode, tables[1], shards[1], t)) for t in range(first, end)
        ]
        assert found == [pair for pair in pairs if None not in pair]


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize(
    "needs",
    [Needs(), Needs(keep=30), Needs(keep=0), Needs(chunk=64), Needs(keep=30, sink=5), Needs(chunk=50, sink=100)],
)
@pytest.mark.parametrize(("first", "end"), [(0, 300), (0, 3), (17, 18), (90, 100), (128, 192), (40, 40)])
def test_matches_are_the_rows_that_are_needed(needs, rows, first, end):
    def needed(row):
        t = row * rows + rows - 1
        late = needs.keep is None or t >= end - needs.keep
        late = late and (needs.chunk is None or t // needs.chunk == end // needs.chunk)
        return first <= t < end and (late or row * rows < needs.sink)

    groups = plans.tokens(kernel=16), plans.tokens(kernel=24, ratio=2, shards=2, chunk=8)
    table = Blocks(0, np.arange(64))
    found = []
    for shard in (0, 1):
        runs = MatchRule(*groups, needs, rows).runs((first, end), table, table, (0, shard))
        found += [b * 16 // rows + r + i for b, r, _, _, n in np.stack(runs, axis=1).tolist() for i in range(n)]
    assert sorted(found) == [row for row in range(300) if needed(row)]


def test_a_state_has_one_slot():
    rule = MatchRule(plans.state(), plans.state())
    one, none = Blocks(0, np.array([5])), Blocks(0, np.array([-1]))
    assert [column.tolist() for column in rule.runs((0, 99), one, one)] == [[5], [0], [5], [0], [1]]
    with pytest.raises(BlockTableError, match="one slot"):
        rule.runs((0, 99), one, none)


def test_what_is_called_alike_is_said_once():
    assert GroupPair("a") == GroupPair("a", "a", "a")
    assert [constant(name) for name in ("a", "A+b", "x.0", "2")] == ["A", "A_B", "X_0", "N2"]
    assert apart({1: "A", 2: "B", 3: "A"}) == {1: "A_0", 2: "B", 3: "A_1"}


def test_requests_join_what_lies_together():
    """Equal sharding: one request per page and plane where blocks are apart, one per logical block of four in them."""
    plan = plans.plan(2, 2, ratios=(4, 4))
    assert [move.descriptors for move in plan_cost(plan).moves] == [32 * 1024 // 64]
    assert [move.descriptors for move in plan_cost(plans.plan(2, 2)).moves] == [32 * 1024 // 16]


def test_padding_is_bridged_only_where_both_sides_have_it():
    plan = plans.plan(2, 2, ratios=(4, 4))

    def padded(side):
        planes = tuple(replace(entry, stride=entry.stride + 64) for entry in side.workers[0].planes)
        return replace(side, workers=tuple(replace(worker, planes=planes) for worker in side.workers))

    both = replace(plan, prefill=padded(plan.prefill), decode=padded(plan.decode))
    one = replace(plan, prefill=padded(plan.prefill))
    assert plan_cost(both).moves[0].descriptors == 32 * 1024 // 64
    assert plan_cost(one).moves[0].descriptors == 32 * 1024 // 16


def test_digests_are_over_meaning():
    plan = plans.plan()
    renamed = replace(plan, title="other", prefill=replace(plan.prefill, key="other"))
    assert digest.sealed(renamed).digest == plan.digest
    told = digest.sealed(replace(plan, notify=((3,), ())))
    assert told.digest != plan.digest
    with pytest.raises(PlanFormatError, match="plan digest"):
        digest.check(replace(told, digest=plan.digest))


def test_allocations_with_a_number_are_explained():
    compiled = compile_pair(load(), "llama-3.1-8b", "tp=1", "engine=sglang,tp=1")
    said = compiled.text.replace("\n#", "")
    assert 'Allocations by number: part "0" has k (attention), part "1" has v (attention).' in said
    assert "in block t of decode; every token is a run." in compiled.text


def test_names_of_a_hybrid_are_explained_where_they_are():
    text = compile_pair(load(), "nemotron-3-nano-30b", "tp=2", "engine=sglang,tp=2,block=16").text
    said = " ".join(text.replace("\n#", "").split())
    for name, explained in (
        ("arena=1", "Groups of one `arena`, 0 if left out, share memory: a block is of one of them at a time."),
        ('part="conv"', "`part`: an allocation of a cache that has several."),
        ('"tap"', "`kvplan explain WORD` explains the name of an axis."),
    ):
        assert (name in text, explained in said) == (True, True)
    plain = compile_pair(load(), "qwen3-0.6b", "tp=2", "tp=1").text
    assert ("arena" in plain, "`part`" in plain) == (False, False)


def test_lists_and_tables_of_one_cache_are_told_apart():
    """A group's number and a number of layers, which a reviewer would take for each other."""
    text = compile_pair(load(), "gemma-3-27b", "tp=2", "tp=4").text
    names = [line.partition(" =")[0] for line in text.splitlines() if line.startswith(("SLIDING", "LAYERS"))]
    assert names == [
        "LAYERS_OF_SLIDING_4", "LAYERS_OF_SLIDING_5", "SLIDING_GROUPS", "SLIDING_OF_9_LAYERS", "SLIDING_OF_8_LAYERS",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "word", ["per_page", "per_token", "page_rows", "token_step", "holds", "groups", "tokens", "kernel"]
)
def test_a_word_of_several_fields_is_explained(word):
    comments = [
        line for line in compile_pair(load(), "llama-3.1-8b", "tp=4", "tp=2").text.splitlines() if line[:1] == "#"
    ]
    assert f"`{word}`" in "".join(comments)


def test_numbers_that_stand_alone_in_a_page_have_their_axis() -> None:
    """A short page has no room for the word beside each number."""
    text = compile_pair(load(), "llama-3.1-8b", "tp=1", "tp=2,order=nhd").text
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith(("prefill  |", "decode   |"))]
    assert [line.split()[0] for line in lines if line.endswith(", by token")] == ["decode"]
    assert "| head 0" in " ".join(lines[0].split())


def test_pairs_say_that_a_state_is_copied_whole() -> None:
    """Its `GroupPair` has no `page_rows`, and no tokens that could run."""
    states, tokens = (
        compile_pair(load(), model, "tp=1", "tp=2").text for model in ("nemotron-3-nano-30b", "qwen3-0.6b")
    )
    assert ("A state is copied whole.\n" in states, "A state is" in tokens) == (True, False)
