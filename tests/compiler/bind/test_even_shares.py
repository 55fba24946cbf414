"""Workers with unequal shares: refused, whatever the kind, unless the engine's file says that it divides so."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import Refused
from kvplan.dsl.library import Library, load

KIND = """\
kvplan: 1
kind: own
title: A kind that no engine names
params: {heads: {doc: heads}, groups: {doc: groups}}
store: state
split: {head: tp, group: tp}
tensors:
  s: {axes: {head: heads}, dtype: dtype}
  g: {axes: {group: groups}, dtype: dtype}
storage:
  DS: layer { block { s[head] g[group] } }
"""
MODEL = """\
kvplan: 1
model: {0}
title: T
dtype: bf16
layers: 1
caches: {{memory: {{kind: own, layers: all, heads: {1}, groups: {2}}}}}
"""
ENGINE = "kvplan: 1\nengine: {0}\ntitle: E\nextends: custom\n{1}"


@pytest.fixture
def library(tmp_path: Path) -> Library:
    files = {"own": KIND, "odd": MODEL.format("odd", 50, 4), "few": MODEL.format("few", 12, 2)}
    files |= {"mine": ENGINE.format("mine", ""), "any": ENGINE.format("any", "shares: any\n")}
    for name, text in files.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return load((), (tmp_path,))


def refused(library: Library, model: str, side: str) -> Refused:
    with pytest.raises(Refused) as caught:
        bind(library, library.model(model), side)
    return caught.value


@pytest.mark.parametrize("engine", ["vllm", "vllm-legacy", "mine"])
def test_unequal_shares_are_refused(library: Library, engine: str) -> None:
    error = refused(library, "odd", f"engine={engine},tp=4")
    said = f"odd on {engine}: cache 'memory': the 50 items of axis 'head' cannot be divided evenly among tp=4"
    assert (error.code, error.message) == ("C110", said)
    assert error.help.endswith("allowed: tp = 1-2")


def test_unequal_copies_are_refused(library: Library) -> None:
    said = "the 2 items of axis 'group' cannot be divided evenly among tp=3"
    assert said in refused(library, "few", "engine=mine,tp=3").message
    assert bind(library, library.model("few"), "engine=mine,tp=12").caches


def test_an_engine_may_divide_unevenly_and_by_a_list(library: Library) -> None:
    for engine in ("custom", "any"):
        assert len(bind(library, library.model("odd"), f"engine={engine},tp=4").workers) == 4
        assert bind(library, library.model("odd"), f"engine={engine},tp=2,share.memory.head=20+30").caches


def test_others_take_no_list(library: Library) -> None:
    error = refused(library, "odd", "engine=mine,tp=2,share.memory.head=20+30")
    said = "odd on mine: shares of cache 'memory' cannot be listed: each worker has an equal share"
    assert (error.message, error.help) == (said, "leave out share.memory.head")
