"""The corpus against what was accepted, a share of it at a time, and that the judge can find fault."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.conformance import corpus
from tests.conformance.corpus import (
    Configuration,
    Facts,
    Release,
    caches_line,
    configurations,
    facts,
    facts_line,
    releases,
)
from tests.conformance.counted_keys import counted
from tests.conformance.judge import REFUSED, RIGHT, UNJUDGED, WARNED, WRONG, WRONG_WARNED, Verdict, judged
from tests.conformance.packed import numbers_of, packed, packed_pool, runs, unpacked, unpacked_pool
from tests.conformance.verdicts import changes, of_architectures, read_verdicts, written
from tests.shares import share, with_rest

from kvplan.compiler.dumps.dump import read_dump
from kvplan.compiler.dumps.to_model import recognised
from kvplan.dsl.configs.new_model import described
from kvplan.dsl.lang.foreign_json import parse_foreign
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError
from kvplan.dsl.text.source import SourceSpan

PLACE = SourceSpan("config.json", 1, 1, 1)
SHARE = 48  # of so many configurations one is judged by `make test`
KNOWN = configurations()
PLAIN = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": "bfloat16", "hidden_size": 2048,
    "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 512,
}  # fmt: skip


@pytest.mark.parametrize("release", releases(), ids=str)
@with_rest("a share")
def test_the_verdict_of_each_configuration_is_the_one_that_was_accepted(release: Release, rest: bool) -> None:
    """`make conformance ARGS=--accept` accepts what is better."""
    some = share(facts(release).values(), 0, SHARE, rest)
    found = judged(load((), ()), ((KNOWN[one.key], one) for one in some), release.engine)
    told = "\n".join(map(str, changes(read_verdicts(release.verdicts_file), found)))
    assert not told, f"{release}:\n{told}"


@pytest.mark.parametrize("release", releases(), ids=str)
def test_each_configuration_has_facts_and_a_verdict(release: Release) -> None:
    assert {*facts(release)} == {*read_verdicts(release.verdicts_file)}
    assert {*facts(release)} <= {*KNOWN}


def dump(**of_group: object) -> dict[str, Any]:
    """A dump of PLAIN as an engine prints it."""
    names = [f"model.layers.{n}.self_attn.attn" for n in range(4)]
    spec = {"class": "FullAttentionSpec", "block_size": 16, "num_kv_heads": 4, "head_size": 128, "dtype": "bfloat16"}
    view = {"shape": [4, 4, 16, 256], "strides": [32768, 8192, 512, 2], "dtype": "bfloat16"}
    layers = ({"name": name, "layer": n, "offset": n * 131072} for n, name in enumerate(names))
    return {
        "kvplan-dump": 1,
        "engine": {"name": "vllm", "version": "0"},
        "model": {},
        "side": {"order": "LBHNC", "block": "16"},
        "mesh": {"tp": 1},
        "rank": {},
        "blocks": 4,
        "allocations": [524288],
        "axes": ["block", "head", "token", "content"],
        "specs": [spec],
        "groups": [{"store": "tokens", "tokens": 16, "kernel_tokens": 16, **of_group, "layers": names}],
        "layers": [{**layer, "group": 0, "allocation": 0, **view, "spec": 0} for layer in layers],
    }


def verdict(*dumps: dict[str, Any], **config: object) -> Verdict:
    configuration = Configuration("x", "X", "by hand", {**PLAIN, **config})
    (found,) = judged(load((), ()), [(configuration, Facts("x", dumps))])
    return found


UNKNOWN_KEY: dict[str, object] = {"sliding_kv_window": 512}
CASES: dict[str, tuple[list[dict[str, Any]], dict[str, object], str]] = {
    "right": ([dump(), dump()], {}, RIGHT),
    "warned": ([dump()], UNKNOWN_KEY, WARNED),
    "window": ([dump(), dump(window=512)], {}, WRONG),
    "window, warned": ([dump(window=512)], UNKNOWN_KEY, WRONG_WARNED),
    "no oracle": ([], {}, UNJUDGED),
    "no configuration": ([dump()], {"num_hidden_layers": None}, REFUSED),
}


@pytest.mark.parametrize("case", CASES)
def test_the_judge_tells_right_from_wrong(case: str) -> None:
    dumps, config, word = CASES[case]
    found = verdict(*dumps, **config)
    assert found.word == word, found.why


def test_a_side_that_the_layout_refuses_is_not_right() -> None:
    """The engine served it."""
    other = dump()
    other["side"]["order"] = "LAYERS"
    found = verdict(dump(), other)
    assert (found.word, found.equal, found.refused, found.of) == (REFUSED, 1, 1, 2)


def test_a_change_says_which_way_it_went() -> None:
    right, wrong = Verdict("x", RIGHT, 2, 0, 2), Verdict("x", WRONG, 1, 0, 2, "a window")
    told = {"x": right}
    assert [str(c) for c in changes(told, [wrong])] == [
        "worse: x: right (2 of 2 equal) → WRONG (1 of 2 equal): a window"
    ]
    assert [c.way for c in changes({"x": wrong}, [replace(wrong, equal=0)])] == ["worse"]
    assert [c.way for c in changes({"x": wrong}, [right])] == ["better"]
    assert [c.way for c in changes({}, [right])] == ["new"]
    assert changes(told, [replace(right, why="said otherwise")]) == []


def test_verdicts_come_back_from_their_file(tmp_path: Any) -> None:
    path = tmp_path / "x.tsv"
    kept = [
        Verdict("a", WRONG, 1, 0, 2, "a window"),
        Verdict("b", RIGHT, 3, 0, 3, kinds=("gqa",), keys=("head", "n_kv")),
    ]
    path.write_text(written(reversed(kept)))
    assert [*read_verdicts(path).values()] == kept


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"dim": 64, "layers": 2}, ("layers",)),  # as it would be anyway
        ({"dim": 32, "layers": 2}, ("dim", "layers")),
        ({"dim": 32, "size": 32, "layers": 2}, ("dim", "layers", "size")),  # either would do
        ({"dim": 32, "title": 1}, ("dim",)),
    ],
)
def test_a_key_is_put_to_the_test_if_it_changes_the_layout(config: dict[str, object], keys: tuple[str, ...]) -> None:
    def stored(config: Mapping[str, object]) -> object:
        return config.get("layers"), config.get("dim") or config.get("size") or 64

    assert counted(config, (), (frozenset(config),), stored) == keys


def test_one_wrong_configuration_makes_an_architecture_wrong() -> None:
    words = [("A", RIGHT), ("A", WRONG), ("B", REFUSED), ("B", RIGHT), ("B", UNJUDGED)]
    assert of_architectures(words) == {"A": WRONG, "B": RIGHT}


@pytest.mark.parametrize("numbers", [[], [7], [0, 1], [0, 1, 2, 3, 5, 7, 9, 4], [3, 3, 3], [9, 6, 3, 0], [0, 5, 6, 7]])
def test_runs_are_read_back(numbers: list[int]) -> None:
    assert numbers_of(runs(numbers)) == numbers


def test_a_dump_is_read_back_from_its_line() -> None:
    whole = dump(window=512)
    whole["layers"][2]["layer"] = 7
    specs: list[Any] = []
    line = packed(copy.deepcopy(whole), specs)
    assert unpacked(line, specs, "vllm", "0") == whole
    assert specs == whole["specs"]
    assert facts_line("x", [whole, whole]).count("FullAttentionSpec") == 1


def pool(**other: object) -> dict[str, Any]:
    """The pools that SGLang registers for PLAIN with pages of 16 tokens."""
    pages = {"items": [16 * 4 * 128 * 2] * 8, "layers": [*range(4), *range(4)]}
    return {"side": {"block": 16}, "class": "MHATokenToKVPool", "pages": pages, "states": {}, **other}


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (pool(), RIGHT),
        (pool(pages={"items": [8192] * 8, "layers": []}), WRONG),
        (pool(pages={"items": [16384] * 6, "layers": []}), WRONG),
        (pool(pages={"items": [16384] * 8, "layers": [0, 0, 1, 1, 2, 2, 3, 3]}), WRONG),
        (pool(states={"swa": {"items": [16384], "layers": []}}), WRONG),
        (pool(side={"block": 0}), REFUSED),
    ],
)
def test_pools_are_compared_by_bytes_counts_and_layers(found: dict[str, Any], word: str) -> None:
    configuration = Configuration("x", "X", "by hand", PLAIN)
    (verdict,) = judged(load((), ()), [(configuration, Facts("x", (), "", (found,)))], "sglang")
    assert verdict.word == word, verdict.why


# A class that has windows.
OLMO: dict[str, object] = {"architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3"}


def cache(**other: object) -> dict[str, Any]:
    """A layer of PLAIN in transformers' cache."""
    return {"kv": [4, 128, 128], **other}


@pytest.mark.parametrize(
    ("layers", "config", "word"),
    [
        ([cache()] * 4, {}, RIGHT),
        ([cache()] * 4, UNKNOWN_KEY, WARNED),
        ([cache()] * 3, {}, WRONG),
        ([*[cache()] * 3, cache(kv=[4, 128, 64])], {}, WRONG),
        ([*[cache()] * 3, cache(window=64)], {}, WRONG),
        ([*[cache()] * 3, {}], {}, WRONG),
        ([cache(states=[[2, 3]])] * 4, {}, WRONG),
        ([cache(window=64)] * 4, {**OLMO, "sliding_window": 64, "layer_types": ["sliding_attention"] * 4}, RIGHT),
    ],
)
def test_caches_of_transformers_are_compared_layer_by_layer(
    layers: list[dict[str, Any]], config: dict[str, object], word: str
) -> None:
    configuration = Configuration("x", "LlamaForCausalLM", "by hand", {**PLAIN, **config})
    (verdict,) = judged(load((), ()), [(configuration, Facts("x", (), "", (), tuple(layers)))], "transformers")
    assert verdict.word == word, verdict.why


def test_layers_of_a_cache_are_read_back_from_their_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layers = [cache(), cache(window=64), cache(), {}]
    monkeypatch.setattr(corpus, "FACTS", tmp_path)
    release = Release("transformers", "0")
    release.facts_file.write_text("\n".join((caches_line("x", layers, ""), caches_line("y", [], "no class"))))
    assert [(found.layers, found.none) for found in facts(release).values()] == [(tuple(layers), ""), ((), "no class")]


def test_a_pool_is_read_back_from_its_line() -> None:
    assert unpacked_pool(packed_pool(pool())) == pool()


def test_from_cache_knows_every_cache_class_of_a_release() -> None:
    """Without a layout, too: each layer of each dump is of a kind."""
    library, vllm = load((), ()), releases()[-1]
    for one in share(facts(vllm).values(), 1, SHARE, False):
        for printed in one.dumps[:1]:
            assert recognised(read_dump(json.dumps(printed)), library.engine("vllm"), library.kinds).caches


# Words that make a sentence an advice.
STEPS = re.compile(r"\b(add|give|choose|leave|serve|make|set|call|correct|write|ask|describe|use|allowed)\b")


def advice(library: Library, found: Verdict) -> str:
    """The advice of a refusal by `kvplan new` or by an engine's file."""
    config = parse_foreign(json.dumps(KNOWN[found.key].config).encode(), PLACE.path)
    try:
        described(library, config, PLACE)
    except DslError as error:
        return error.diagnostics[0].help
    return found.why


@with_rest("a share")
def test_every_refusal_of_the_corpus_says_what_to_do_next(rest: bool) -> None:
    every = [found for release in releases() for found in read_verdicts(release.verdicts_file).values()]
    refused, library = [found for found in every if found.word == REFUSED], load((), ())
    some = share(refused, 0, 4, rest)
    assert some
    assert [found for found in some if not STEPS.search(advice(library, found))] == []
