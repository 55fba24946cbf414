"""How caches share blocks: pools whose pages are made equal, pages packed into blocks, groups by what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundCache
from kvplan.compiler.errors import Refused
from kvplan.compiler.paging.groups import form
from kvplan.compiler.paging.packing import balanced_size, packed
from kvplan.compiler.paging.pool import ALIKE, ONE, PACKED, PooledCache, pooled
from kvplan.compiler.placement.place import place
from kvplan.dsl.lang.nodes import Storage
from kvplan.dsl.library import load
from kvplan.dsl.schema.engine import GroupRules
from kvplan.dsl.text.source import inline
from kvplan.plan.types import ALL, Needs

SPAN = inline("")
RULE = GroupRules("by_retention", "strided", "true", (3, 2))


def cache(name: str, layers: Sequence[int], needs: Needs = ALL, store: str = "tokens") -> BoundCache:
    storage = Storage("LBHNC", (), SPAN)
    return BoundCache(name, name, store, tuple(layers), (), storage, {}, 16, None, False, tokens=16, needs=needs)


def full(name: str, count: int, page: int, tokens: int = 16, rigid: bool = False) -> PooledCache:
    return PooledCache(cache(name, range(count)), tokens, page, rigid)


def window(name: str, count: int, page: int, keep: int = 127, tokens: int = 16) -> PooledCache:
    return PooledCache(cache(name, range(count), Needs(keep, None, 0)), tokens, page)


def state(name: str, count: int, page: int) -> PooledCache:
    return PooledCache(cache(name, range(count), store="state"), 0, page)


def sizes(parts: list[list[tuple[str, int]]]) -> list[int]:
    return [len(part) for part in parts]


def test_caches_that_need_the_same_blocks_are_one_group_whatever_their_pages() -> None:
    pool = pooled([full("latent", 3, 1000), full("keys", 3, 17)], inside=False)
    assert (pool.way, pool.page) == (ONE, 0)
    (group,) = form(RULE, [entry.cache for entry in pool.entries], {"": pool})
    assert group.name == "latent+keys"
    assert [layer for _, layer in group.members] == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("other", [window("near", 2, 100), state("s", 2, 100), full("far", 2, 100, tokens=32)])
def test_caches_that_need_other_blocks_are_not(other: PooledCache) -> None:
    pool = pooled([full("a", 2, 100), other], inside=False)
    assert pool.way == ALIKE
    assert len(form(RULE, [entry.cache for entry in pool.entries], {"": pool})) == 2


def test_pages_come_to_the_largest_outside_blocks_and_keep_their_bytes_inside() -> None:
    entries = [full("a", 2, 300), window("b", 2, 200)]
    assert (pooled(entries, inside=False).way, pooled(entries, inside=False).page) == (ALIKE, 300)
    assert (pooled(entries, inside=True).way, pooled(entries, inside=True).page) == (PACKED, 0)


def test_a_rigid_page_may_hold_more_tokens() -> None:
    assert pooled([full("a", 2, 100, rigid=True), window("b", 2, 200)], inside=False).page == 200


def test_windows_beside_a_rigid_page_that_does_not_fit_keep_all_their_blocks() -> None:
    pool = pooled([full("a", 2, 100, tokens=64, rigid=True), window("b", 2, 250, tokens=16)], inside=False)
    assert (pool.way, pool.promoted) == (ONE, frozenset({"b"}))
    assert [entry.tokens for entry in pool.entries] == [64, 64]


@pytest.mark.parametrize(
    "other",
    [
        PooledCache(cache("b", range(2), Needs(None, 64, 0)), 16, 250),
        PooledCache(cache("b", range(2), Needs(127, None, 0)), 16, 250, True),
        state("b", 2, 250),
    ],
)
def test_chunks_states_and_rigid_windows_cannot(other: PooledCache) -> None:
    with pytest.raises(Refused, match="100 B, which do not divide the 250 B of 'b'") as caught:
        pooled([full("a", 2, 100, rigid=True), other], inside=False)
    assert caught.value.code == "C138"


def test_a_pattern_of_unlike_pages_sets_how_many_layers_a_group_has() -> None:
    pattern = [full("few", 21, 900, tokens=4), full("keys", 21, 70, tokens=4)]
    found = packed([*pattern, window("near", 43, 1000), full("many", 20, 900, tokens=8)])
    assert [sizes(parts) for _, parts in found] == [[42], [22, 21], [20]]


def test_an_unbalanced_lot_stays_whole() -> None:
    ((_, parts),) = packed([full("latent", 9, 900), full("keys", 4, 70)])
    assert sizes(parts) == [13]


def test_states_are_cut_to_what_a_block_holds_anyway() -> None:
    found = packed([full("attention", 4, 100), state("s", 10, 150)])
    assert [sizes(parts) for _, parts in found] == [[4], [2, 2, 2, 2, 2]]
    assert [sizes(parts) for _, parts in packed([full("attention", 1, 100), state("s", 3, 500)])] == [[1], [1, 1, 1]]


def test_windows_are_cut_like_states_where_no_pattern_repeats() -> None:
    found = packed([full("attention", 4, 100), window("near", 9, 150)])
    assert [sizes(parts) for _, parts in found] == [[4], [2, 2, 2, 2, 1]]


def test_every_layer_is_packed_once_and_no_loose_group_widens_a_block() -> None:
    random = Random(5)
    for _ in range(300):
        entries = [
            random.choice((full, window, state))(f"c{n}", random.randint(1, 12), 10 * random.randint(1, 12))
            for n in range(random.randint(2, 5))
        ]
        found = packed(entries)
        members = [member for _, parts in found for part in parts for member in part]
        assert sorted(members) == sorted((e.cache.name, layer) for e in entries for layer in e.cache.layers)
        pages = {entry.cache.name: entry.page for entry in entries}
        width = {store: [] for store in ("tokens", "state")}  # type: dict[str, list[int]]
        for bucket, parts in found:
            width[bucket[0].store] += [sum(pages[name] for name, _ in part) for part in parts]
        assert max(width["state"], default=0) <= max(*width["tokens"], *(e.page for e in entries), 0)


@pytest.mark.parametrize(
    ("counts", "least", "size"), [([43, 21, 20], 21, 22), ([4, 8], 1, 4), ([5], 2, 5), ([3], 7, 7), ([6, 4], 2, 2)]
)
def test_sizes_leave_least_over(counts: list[int], least: int, size: int) -> None:
    assert balanced_size(counts, least) == size
    over = {n: sum(-count % n for count in counts) for n in range(least, max(*counts, least) + 1)}
    assert over[size] == min(over.values())


ENGINE = """kvplan: 1
engine: odd
extends: vllm
title: An engine with rules of its own
"""


@pytest.mark.parametrize(
    ("rules", "code", "said"),
    [
        ("groups: {block: tokens}", "C118", "unknown name '(shared_page|own_page|fully_allocated)'"),
        ("groups: {block: spec_block_size - 16}", "C116", "a block has 0"),
        ("groups: {block: spec_block_size - 32}", "C114", "tokens of 'attention' comes out as -16"),
        ("groups: {block: order}", "C114", "comes out as 'LBHNC'"),
        ("groups: {block: spec_block_size // (tp - 1)}", "C118", "division by zero"),
        ("groups: {page: {gqa: 0 - 1}}", "C114", "page of 'attention' comes out as -1"),
        ("groups: {page: {tokens: kind}}", "C114", "page of 'attention' comes out as 'gqa'"),
        ("groups: {rigid: order + 1}", "C118", "expected a number"),
        ("derive: {page_size_padded: order}", "C114", "page_size_padded of 'attention' comes out as 'LBHNC'"),
        (
            "derive: {block_stride_alignment: 0}",
            "C114",
            "block_stride_alignment of 'attention' comes out as 0, not a number of bytes from 1",
        ),
        ("derive: {first: second}", None, "unknown name 'second'"),
    ],
)
def test_rules_that_give_nonsense_are_refused(tmp_path: Path, rules: str, code: str | None, said: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"{ENGINE}{rules}\n")
    library = load([path])
    with pytest.raises(Exception, match=said) as caught:
        bind(library, library.model("llama-3.1-8b"), "engine=odd,tp=1")
    assert getattr(caught.value, "code", None) == code


@pytest.mark.parametrize("least", [65536, 65537, 200000])
def test_a_page_may_be_asked_to_be_larger(tmp_path: Path, least: int) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(f"{ENGINE}groups: {{page: {{gqa: {least}}}}}\n")
    library = load([path])
    side = bind(library, library.model("llama-3.1-8b"), "engine=odd,tp=1")
    assert side.caches[0].padded == max(least, 16 * 8 * 128 * 2 * 2)
    (part,) = {(part.page, part.stride) for unit in place(side, side.workers[0]) for part in unit.parts}
    assert part == (16 * 8 * 128 * 2 * 2, max(least, 16 * 8 * 128 * 2 * 2))
