"""The rule of which tokens are needed, against the match functions, the second opinion and the checksums."""

from __future__ import annotations

import pickle
import subprocess
import sys
from random import Random

import numpy as np
import pytest

from kvplan.compiler.check.labels import NeededTokens
from kvplan.plan.block_tables import positions
from kvplan.plan.match import MatchRule
from kvplan.plan.needs import Needs, oldest, room
from kvplan.plan.types import Blocks, Group
from kvplan.runtime.checksum import rows as checksum

MOST = 60


def drawn(random: Random) -> tuple[Needs, int]:
    keep = random.choice([None, random.randint(0, MOST)])
    chunk = random.choice([None, random.randint(1, MOST // 2)])
    sink, whole = random.choice([0, random.randint(1, 9)]), random.choice([1, 1, random.randint(2, MOST // 2)])
    return Needs(keep, chunk, sink, whole), random.choice([1, 1, 2, 4])


def in_rows(needs: Needs, rows: int, first: int, end: int) -> list[int]:
    return [row for start, stop in needs.ranges(first, end, rows) for row in range(start // rows, stop // rows)]


@pytest.mark.parametrize("seed", range(40))
def test_four_statements_of_the_rule_agree(seed: int) -> None:
    random = Random(seed)
    needs, rows = drawn(random)
    if needs.keep is None and needs.chunk is None:
        needs = Needs(whole=needs.whole)
    group = Group("a", "tokens", 8 * rows, 8 * rows, 1, 0)
    rule, table = MatchRule(group, group, needs, rows), Blocks(0, np.arange(MOST))
    for _ in range(30):
        first, end = sorted(random.choices(range(MOST), k=2))
        found = in_rows(needs, rows, first, end)
        runs = rule.runs((first, end), table, table)
        matched = [8 * b + t + n for b, t, c in zip(*runs[:2], runs.count, strict=True) for n in range(c)]
        row = np.arange(first // rows, max(end // rows, first // rows))
        labelled = NeededTokens(needs, first, end).test(row * rows + rows - 1, rows)
        assert found == sorted(matched) == row[labelled].tolist() == checksum.needed((first, end), needs, rows).tolist()


@pytest.mark.parametrize("seed", range(40))
def test_positions_are_those_of_the_tokens_one_by_one(seed: int) -> None:
    random = Random(seed)
    shards, chunk, tokens = random.choice([1, 1, 2, 3]), random.randint(1, 9), random.randint(1, 9)
    ring = 0 if shards > 1 else random.choice([0, 3 * tokens])
    group = Group("a", "tokens", tokens, tokens, 1, 0, shards, chunk if shards > 1 else 1, ring=ring)
    for _ in range(30):
        first, end = sorted(random.choices(range(MOST), k=2))
        shard = random.randrange(shards)
        own = [t for t in range(MOST) if t // group.chunk % shards == shard]
        local = [n for n, token in enumerate(own) if first <= token < end]
        expected = {n % ring // tokens if ring else n // tokens for n in local}
        assert {p for each in positions(group, (first, end), shard) for p in each} == expected


def test_a_rule_is_the_same_in_another_process() -> None:
    """Another process hashes texts differently, so that the rule must compute its hash again."""
    group = Group("g", "tokens", 16, 16)
    rule = MatchRule(group, group)
    found = "rule in {type(rule)(rule.prefill, rule.decode)}"
    script = f"import pickle, sys; rule = pickle.load(sys.stdin.buffer); print({found})"
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(rule), capture_output=True, check=True)
    assert done.stdout == b"True\n"


def test_ranges_that_meet_are_one_and_none_is_empty() -> None:
    assert Needs(keep=4, sink=4).ranges(0, 8) == [(0, 8)]
    assert Needs(keep=3, sink=4).ranges(0, 8) == [(0, 4), (5, 8)]
    assert Needs(keep=3, sink=4).ranges(4, 8) == [(5, 8)]
    assert Needs(keep=0).ranges(0, 8) == Needs().ranges(3, 3) == Needs().ranges(1, 3, 4) == []
    assert Needs().ranges(1, 9, 4) == [(0, 8)]


def test_tokens_behind_the_last_whole_block_are_not_needed() -> None:
    assert Needs(whole=32).ranges(0, 100) == [(0, 96)]
    assert Needs(whole=32).ranges(96, 100) == Needs(whole=32).ranges(0, 31) == []
    assert Needs(keep=10, whole=32).ranges(0, 100) == [(86, 96)]
    assert Needs(chunk=64, sink=4, whole=32).ranges(0, 100) == [(0, 4), (64, 96)]
    assert Needs(whole=6).ranges(0, 17, 4) == [(0, 12)]
    assert room(Needs(keep=10, whole=32)) == 41


def test_a_row_is_one_token_unless_it_is_said() -> None:
    assert Needs(keep=3).ranges(0, 8) == [(5, 8)]
    assert (room(Needs(keep=3)), oldest(9, 4)) == (3, 5)
