"""An option that is given is told apart from one that has the same value by default."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import Refused
from kvplan.dsl.check import check
from kvplan.dsl.lang.nodes import Name
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.diagnostics import DslError

LATENTS = """kvplan: 1
model: latents
title: Compressed latents
dtype: bf16
query_heads: 8
layers: 2
caches:
  few: {kind: compressed-latent, layers: all, ratio: 4RECORD}
"""
ASKING = """kvplan: 1
engine: asking
extends: custom
title: An engine that asks whether a block is given
derive: {tokens: "block * 2 if given(block) else block"}
"""
# Two parameters of which a model may give either, and a tensor that is there if either is.
KIND = """kvplan: 1
kind: rows
title: Rows whose form depends on which parameters a model gives
params:
  dim:   {doc: elements}
  extra: {default: 0, doc: more elements}
store: tokens
tensors:
  k: {axes: {token: ~, dim: dim}, dtype: kv_dtype}
  x: {axes: {token: ~, more: "max(extra, 8)"}, dtype: f32, when: given(extra)}
storage:
  LBHNC: layer { block { token { k[dim] x[more] } } }
"""
ROWS = """kvplan: 1
model: tiny
title: Tiny
dtype: bf16
query_heads: 8
layers: 2
caches:
  a: {kind: rows, layers: all, dim: 16}
  b: {kind: rows, layers: all, dim: 16, extra: 0}
  c: {kind: rows, layers: all, dim: 16, when: given(draft_tokens), optional: true}
"""
SIDES = ("order=BLHNC,block=256", "engine=custom,block=256", "engine=store,block=256")


def latents(folder: Path, record: str = "") -> Library:
    (folder / "latents.yaml").write_text(LATENTS.replace("RECORD", record))
    return load((), [folder])


def dtypes(library: Library, model: str, text: str) -> dict[str, list[str]]:
    return {c.name: [t.dtype for t in c.tensors] for c in bind(library, library.model(model), text).caches}


@pytest.mark.parametrize("side", SIDES)
def test_a_type_that_is_given_holds_even_if_it_is_the_default(tmp_path: Path, side: str) -> None:
    library = latents(tmp_path)
    assert dtypes(library, "latents", side) == {"few": ["fp8", "bf16", "u8"]}
    assert dtypes(library, "latents", f"{side},kv_dtype=bf16") == {"few": ["bf16", "bf16"]}
    assert dtypes(library, "latents", f"{side},kv_dtype=bfloat16" if "store" not in side else f"{side},kv_dtype=f16")


@pytest.mark.parametrize("side", SIDES)
def test_a_key_names_an_option_that_makes_another_side(tmp_path: Path, side: str) -> None:
    library = latents(tmp_path)
    model = library.model("latents")
    plain = bind(library, model, f"{side},kv_dtype=bf16")
    assert "kv_dtype=bf16" in plain.key.split(",")
    assert bind(library, model, plain.key) == plain
    assert "kv_dtype" not in bind(library, model, side).key


@pytest.mark.parametrize("side", SIDES)
def test_a_key_leaves_out_what_changes_nothing(tmp_path: Path, side: str) -> None:
    """The model's own record comes before the side's, so that this option says nothing here."""
    library = latents(tmp_path, ", record: bf16")
    model = library.model("latents")
    assert bind(library, model, f"{side},kv_dtype=bf16") == bind(library, model, side)


def test_a_pair_of_given_types_moves_plain_rows(tmp_path: Path) -> None:
    """The oracle, which indexes naively, finds every byte of the plan where it should be."""
    library = latents(tmp_path)
    here, there = "tp=2,order=BLHNC,block=256,kv_dtype=bf16", "order=BLNHC,block=256,kv_dtype=bf16"
    words = ["simulate", str(tmp_path / "latents.yaml"), "--prefill", here, "--decode", there]
    assert CliRunner().invoke(main, words).exit_code == 0
    made = compile_pair(library, "latents", here, there)
    assert made.path.endswith("_bf16.py")
    assert compile_pair(library, "latents", "order=BLHNC,block=256", "order=BLHNC,block=256").path != made.path


def test_one_side_that_gives_it_is_told_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="C133") as caught:
        compile_pair(latents(tmp_path), "latents", "order=BLHNC,block=256,kv_dtype=bf16", "order=BLHNC,block=256")
    assert caught.value.help.endswith("give both sides kv_dtype=bf16, or neither of them")


def test_a_rule_of_an_engine_may_ask(tmp_path: Path) -> None:
    (tmp_path / "asking.yaml").write_text(ASKING)
    library = load((), [tmp_path])
    model = library.model("llama-3.1-8b")
    given, default = (bind(library, model, f"engine=asking,tp=1{more}") for more in (",block=16", ""))
    assert [side.groups[0].tokens for side in (given, default)] == [32, 16]
    assert (given.key, default.key) == ("engine=asking,tp=1,block=16", "engine=asking,tp=1")
    assert bind(library, model, given.key) == given
    # With the rule overruled, the option has no effect.
    over = bind(library, model, "engine=asking,tp=1,block=16,tokens=64")
    assert over == bind(library, model, "engine=asking,tp=1,tokens=64")


def test_a_kind_and_a_model_may_ask(tmp_path: Path) -> None:
    for name, text in (("rows", KIND), ("tiny", ROWS)):
        (tmp_path / f"{name}.yaml").write_text(text)
    library = load((), [tmp_path])
    assert dtypes(library, "tiny", "engine=custom") == {"a": ["bf16"], "b": ["bf16", "f32"]}
    given = bind(library, library.model("tiny"), "engine=custom,draft_tokens=0")
    assert [cache.name for cache in given.caches] == ["a", "b", "c"]
    assert given.key == "engine=custom,tp=1,draft_tokens=0"


@pytest.mark.parametrize("wrong", ["given(bloc)", "given(tp)", "given('block')", "given(block, tp)"])
def test_what_is_asked_about_is_an_option_or_a_parameter(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "asking.yaml"
    path.write_text(ASKING.replace("given(block)", wrong))
    error = check([path])[0]
    assert error.code == ("E004" if "'" in wrong or "," in wrong else "E005")
    with pytest.raises(DslError):
        load([path]).engine("asking")


def test_no_shipped_file_takes_a_default_for_one_that_is_not_given() -> None:
    """`kv_dtype == dtype` is true for a side that gives the default, too: files ask `given(kv_dtype)`."""
    library, files = load(), [*(ROOT / "layouts").rglob("*.yaml")]
    options = [option for name in library.engines for option in library.engine(name).options.values()]
    named = {(one.name, one.default.text) for one in options if one.default and isinstance(one.default.tree, Name)}
    assert ("kv_dtype", "dtype") in named
    pairs = [rf"\b{a}\s*[!=]=\s*{b}\b" for one in named for a, b in (one, one[::-1])]
    found = [(path.name, pair) for path in files for pair in pairs if re.search(pair, path.read_text())]
    assert found == []
