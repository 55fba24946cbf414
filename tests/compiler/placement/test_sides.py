"""Rare layouts: planes whose names clash, pages of padding alone, caches of nothing, padding of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import BadInput, CompileError, Refused
from kvplan.dsl.library import Library, load
from kvplan.plan.planes import planes

KIND = """kvplan: 1
kind: rare
title: Rare
params: {heads: {default: 2}, dim: {default: 4}, there: {default: 1}}
store: tokens
split: {head: tp}
tensors:
  k: {axes: {head: heads, token: ~, dim: dim}, dtype: bf16, when: there == 1}
storage:
  apart: head { block { layer { token { k[dim] } } } }
  inside: block { layer { head { token { k[dim] } } } }
  outside: layer { block { head { token { k[dim] } } } }
  padded: layer { dim { block { head { token { k } } pad(8) } } }
  aligned: layer { block { head { token { k[dim] } align(dim - 4) } } }
"""
CACHE = "  {name}: {{kind: rare, layers: all{more}}}\n"
MODEL = "kvplan: 1\nmodel: m\ntitle: M\ndtype: bf16\nquery_heads: 8\nlayers: 2\ncaches:\n"


def library(folder: Path, *caches: str) -> Library:
    (folder / "rare.yaml").write_text(KIND)
    (folder / "m.yaml").write_text(MODEL + "".join(caches))
    return load((), (folder,))


def refused(known: Library, order: str, engine: str = "engine=custom") -> CompileError:
    with pytest.raises((BadInput, Refused)) as error:
        compile_pair(known, "m", f"{engine},order={order}", "engine=custom,order=outside")
    return error.value


def test_two_planes_of_one_name_are_refused(tmp_path: Path) -> None:
    """`a` with heads apart has the plane a.0, and so has `a.0` with all layers inside a block."""
    (tmp_path / "other.yaml").write_text(
        KIND.replace("kind: rare", "kind: other").replace("head { block { layer", "block { head { layer")
    )
    other = CACHE.format(name="a.0", more="").replace("rare", "other")
    error = refused(library(tmp_path, CACHE.format(name="a", more=""), other), "apart")
    assert (error.code, "'a.0'" in error.message) == ("C140", True)


def test_a_cache_without_tensors_is_refused(tmp_path: Path) -> None:
    assert refused(library(tmp_path, CACHE.format(name="a", more=", there: 0")), "outside").code == "S012"


def test_a_page_of_padding_alone_moves_nothing(tmp_path: Path) -> None:
    known = library(tmp_path, CACHE.format(name="a", more=""))
    prefill = "engine=custom,order=padded,tp=3,share.a.head=1+0+1"
    made = compile_pair(known, "m", prefill, "engine=custom,order=inside")
    request = sample_request(made.prefill, made.decode, (3, 100))
    assert simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request).right


def test_layers_inside_blocks_of_several_planes_are_not_padded(tmp_path: Path) -> None:
    """Each plane would have the padding of all."""
    derived = 'derive: {page_size_padded: "1000"}'
    (tmp_path / "padding.yaml").write_text(f"kvplan: 1\nengine: padding\nextends: custom\ntitle: P\n{derived}\n")
    known = library(tmp_path, CACHE.format(name="a", more=""))
    whole = compile_pair(known, "m", "engine=padding,order=inside", "engine=custom,order=outside").plan
    assert [plane.page for plane in planes(whole.prefill.workers[0])] == [2000]
    assert refused(known, "apart", "engine=padding").code == "C107"


def test_an_alignment_of_nothing_is_refused(tmp_path: Path) -> None:
    assert refused(library(tmp_path, CACHE.format(name="a", more="")), "aligned").code == "C101"
    known = library(tmp_path, CACHE.format(name="a", more=", dim: 8"))
    assert compile_pair(known, "m", "engine=custom,order=aligned", "engine=custom,order=outside").plan.reads
