"""Conditions of caches: words that no option can be, what is wrong for every side, and what a side's words mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.bound import BoundSide
from kvplan.compiler.errors import Refused
from kvplan.dsl.check import check, errors_of
from kvplan.dsl.library import load

MODEL = """kvplan: 1
model: conditional
title: A cache that some sides store
dtype: bf16
query_heads: 8
layers: 2
caches:
  full: {kind: gqa, layers: all, heads: 8, dim: 64}
  some: {kind: gqa, layers: all, heads: 8, dim: 64, optional: true, when: "WHEN"}
"""

LATENTS = """kvplan: 1
model: toy
title: Latents with an index
checkpoint: {architecture: NewForCausalLM, model_type: new}
dtype: bf16
query_heads: 4
layers: 2
caches:
  attention: {kind: mla, layers: all, latent: 512, rope: 64, nope: 128}
  indexer: {kind: indexer, layers: all, dim: 128}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conditional.yaml"


def found(path: Path, when: str) -> list[tuple[str, str, str]]:
    path.write_text(MODEL.replace("WHEN", when))
    return [(error.code, error.message, error.help) for error in check([path])]


def bound(path: Path, when: str, side: str) -> BoundSide:
    assert found(path, when) == []
    library = load([path])
    return bind(library, library.model("conditional"), side)


@pytest.mark.parametrize(
    "when",
    [
        "order == 'LBHNC'", "order != 'hnd'", "'nhd' == order", "order == 'vectorized_5d'", "order == 'rows'",
        "kv_dtype == 'fp8'", "recurrent == 'f32'", "draft_tokens > 0 and not (order == 'hnd')", "dtype == 'bf16'",
        "(order if draft_tokens == 1 else conv) == 'hnd'", "true", "false", "draft_tokens > 10 // 3",
    ],
)  # fmt: skip
def test_conditions_that_may_hold(path: Path, when: str) -> None:
    assert found(path, when) == []


@pytest.mark.parametrize(
    ("when", "code", "message", "help"),
    [
        ("order == 'foo'", "K010", "'order' is never 'foo'", "LBHNC"),
        ("'LBHN' != order", "K010", "'order' is never 'LBHN'", "did you mean 'LBHNC'?"),
        ("draft_tokens > 0 and order == 'foo'", "K010", "'order' is never 'foo'", ""),
        ("1 if order == 'foo' else 0", "K010", "'order' is never 'foo'", ""),
        ("not (order == 'foo')", "K010", "'order' is never 'foo'", ""),
        ("max(1 if order == 'foo' else 0, 1) == 1", "K010", "'order' is never 'foo'", ""),
        ("block == 'large'", "K010", "'block' is never 'large'", "it is a number"),
        ("recurrent == 'f33'", "K010", "'recurrent' is never 'f33'", "f32"),
        ("1 // 0", "B001", "division by zero", ""),
        ("draft_tokens > 1 // 0", "B001", "division by zero", ""),
        ("draft_tokens > 0 or 1 % 0 == 1", "B001", "division by zero", ""),
        ("'words'", "T001", "", ""),
        ("draft_tokens > 0 and 1 == 'one'", "T001", "cannot be compared", ""),
        ("draft_tokens > true", "T001", "expected a number, not true", ""),
        ("false or 'one' <= draft_tokens", "T001", "expected a number, not the text 'one'", ""),
        ("(block + 'one') > 2", "T001", "expected a number, not the text 'one'", ""),
        ("ordr == 'hnd'", "E005", "unknown name 'ordr'", "order"),
    ],
)
def test_conditions_that_never_make_sense(path: Path, when: str, code: str, message: str, help: str) -> None:
    (error,) = found(path, when)
    assert error[0] == code
    assert message in error[1]
    assert help in error[2]


def test_an_option_whose_words_nobody_lists_may_be_any(path: Path) -> None:
    engine = path.with_name("free.yaml")
    options = "options: {flavour: {type: name, default: \"'plain'\"}}"
    own = "own: {indexer: {ours: 'layer { block { token { k[dim] } } }'}}"
    engine.write_text(f"kvplan: 1\nengine: free\nextends: custom\ntitle: Free\n{options}\n{own}\n")
    path.write_text(MODEL.replace("WHEN", "order == 'ours'"))
    assert errors_of(load([path, engine]), path) == []
    assert [error[0] for error in found(path, "order == 'ours'")] == ["K010"]
    path.write_text(MODEL.replace("WHEN", "flavour == 'sweet'"))
    assert check([path, engine]) == []
    library = load([path, engine])
    model = library.model("conditional")
    for side, stored in (("engine=free", 1), ("engine=free,flavour=sweet", 2), ("tp=1", 1)):
        assert len(bind(library, model, side).caches) == stored


@pytest.mark.parametrize(
    ("side", "stores"),
    [
        ("order=hnd", True), ("order=LBHNC", True), ("order=nhd", False), ("engine=sglang,order=hnd", True),
        ("engine=sglang,order=nhd", False), ("engine=gaudi", False),
    ],
)  # fmt: skip
def test_a_word_means_what_it_means_in_a_side(path: Path, side: str, stores: bool) -> None:
    for when in ("order == 'hnd'", "'hnd' == order", "not (order != 'hnd')", "max(1 if order == 'hnd' else 0, 0) == 1"):
        made = bound(path, when, side)
        assert [cache.name for cache in made.caches] == ["full", *(["some"] if stores else [])]


def test_what_is_not_stored_is_noted_and_changes_no_digest(path: Path) -> None:
    assert found(path, "draft_tokens > 0") == []
    lacking = compile_pair(load([path]), "conditional", "tp=1", "tp=2")
    assert lacking.decode.absent == (("some", "when draft_tokens > 0"),)
    assert "Both sides: some is stored only when draft_tokens > 0, which is false here." in lacking.text
    path.write_text("".join(line for line in path.read_text().splitlines(True) if "some:" not in line))
    plain = compile_pair(load([path]), "conditional", "tp=1", "tp=2")
    assert "not stored" not in plain.text
    assert (plain.plan.digest, plain.decode.absent) == (lacking.plan.digest, ())


def test_what_one_side_lacks_is_said_with_its_condition(path: Path) -> None:
    assert found(path, "draft_tokens > 0") == []
    one_sided = compile_pair(load([path]), "conditional", "draft_tokens=1", "tp=2")
    assert one_sided.plan.skipped == ("some",)
    assert "Decode: some is stored only when draft_tokens > 0, which is false here." in one_sided.text
    assert "Prefill: some" not in one_sided.text
    path.write_text(path.read_text().replace("optional: true, ", ""))
    with pytest.raises(Refused, match="decode does not \\(when draft_tokens > 0\\)") as caught:
        compile_pair(load([path]), "conditional", "draft_tokens=1", "tp=2")
    help = "give both sides options with which draft_tokens > 0; a cache that the model marks optional is skipped"
    assert (caught.value.code, caught.value.help) == ("C131", help)


def test_an_option_that_one_engine_lacks_is_asked_of_the_other_side_only(tmp_path: Path) -> None:
    """SGLang has no `latents`, so nothing of it could be given to both sides."""
    (tmp_path / "toy.yaml").write_text(LATENTS)
    with pytest.raises(Refused) as caught:
        compile_pair(load([tmp_path / "toy.yaml"]), "toy", "engine=sglang,block=64", "tp=1")
    assert str(caught.value.message) == (
        "prefill stores the cache 'indexer', decode does not (because latents == 'heads')"
    )
    assert caught.value.help == "give decode latents=kept, if its engine vllm runs so"


def test_a_cache_that_its_own_condition_leaves_out_is_led_back_to_that(tmp_path: Path) -> None:
    """The engine would store it as another kind, too, which no condition asks for."""
    draft = "{kind: mla, layers: drafts, latent: 512, rope: 64, nope: 128, when: draft_tokens > 0}"
    (tmp_path / "toy.yaml").write_text(LATENTS.replace("layers: 2", "layers: 2\ndrafts: 1") + f"  draft: {draft}\n")
    with pytest.raises(Refused, match="decode does not \\(when draft_tokens > 0") as caught:
        compile_pair(load([tmp_path / "toy.yaml"]), "toy", "tp=1,latents=heads,draft_tokens=1", "tp=1,latents=heads")
    assert caught.value.help.startswith("give both sides options with which draft_tokens > 0; ")


def test_a_cache_that_an_engine_leaves_out_by_a_number_is_led_back_to_its_condition(tmp_path: Path) -> None:
    engine = "kvplan: 1\nengine: few\nextends: vllm\ntitle: vLLM\ninstead: {indexer: {when: draft_tokens > 2}}\n"
    for name, text in (("toy", LATENTS), ("few", engine)):
        (tmp_path / f"{name}.yaml").write_text(text)
    library = load([tmp_path / "toy.yaml", tmp_path / "few.yaml"])
    sides = "engine=few,tp=1,latents=kept", "engine=few,tp=1,latents=kept,draft_tokens=3"
    for pair in (sides, sides[::-1]):
        with pytest.raises(Refused, match="does not \\(because draft_tokens > 2") as caught:
            compile_pair(library, "toy", *pair)
        said = "give both sides options with which draft_tokens > 2 is false"
        assert (caught.value.code, caught.value.help) == ("C131", said)


def test_an_option_that_changes_nothing_of_the_tensor_is_not_named() -> None:
    """`block` is given on one side only, and another engine decides the record."""
    with pytest.raises(Refused, match="C133") as caught:
        compile_pair(load(), "deepseek-v3.2", "engine=sglang,block=64", "index_keys=mxfp4")
    assert caught.value.help.endswith(
        "it does not convert them: give decode index_keys=fp8, if its engine vllm runs so"
    )


def test_an_option_is_named_although_neither_engine_runs_with_the_other_value() -> None:
    with pytest.raises(Refused, match="C134") as caught:
        compile_pair(load(), "qwen3-32b", "engine=vllm-cpu,kv_dtype=f32", "engine=ascend,tp=1")
    assert "give both sides kv_dtype=f32, or both kv_dtype=bf16" in caught.value.help


def test_another_record_is_led_back_to_the_option_that_chose_it(tmp_path: Path) -> None:
    """A parameter that only one of the kinds has is no cause."""
    (tmp_path / "toy.yaml").write_text(LATENTS.replace("dim: 128}", "dim: 128, optional: true}"))
    library, sides = load([tmp_path / "toy.yaml"]), ("engine=sglang,block=64", "tp=1")
    for pair, lacks in ((sides, "decode"), (sides[::-1], "prefill")):
        with pytest.raises(Refused, match="C133") as caught:
            compile_pair(library, "toy", *pair)
        assert caught.value.help.endswith(f"convert them: give {lacks} latents=kept, if its engine vllm runs so")


def test_sides_without_a_cache_in_common_are_told_what_each_lacks(path: Path) -> None:
    assert found(path, "draft_tokens > 0") == []
    path.write_text(path.read_text().replace("dim: 64}", "dim: 64, optional: true}"))
    library = load([path])
    with pytest.raises(Refused) as caught:
        compile_pair(library, "conditional", "without=full", "without=full")
    assert caught.value.code == "C136"
    assert "both lack 'full' (without=full), 'some' (when draft_tokens > 0)" in caught.value.help
    with pytest.raises(Refused) as caught:
        compile_pair(library, "conditional", "without=full,draft_tokens=1", "tp=1")
    assert caught.value.code == "C136"
    assert caught.value.help.endswith(
        "prefill lacks 'full' (without=full); decode lacks 'some' (when draft_tokens > 0)"
    )
