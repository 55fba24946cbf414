"""Mesh axes that no engine has are errors; numbers that an engine refuses or pads, and swapped ones, are warnings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.paths import ROOT

from kvplan.cli.main import main
from kvplan.dsl.check import check, doubts
from kvplan.dsl.library import load

Write = Callable[[str, str], Path]
KIND = """kvplan: 1
kind: pairs
title: Keys of pairs
params: {heads: {doc: heads}, dim: {doc: elements}}
store: tokens
SPLIT
tensors:
  k: {axes: {head: heads, token: ~, dim: dim}, dtype: bf16OWN}
variants:
  wide: {when: dim > 64, tensors: {k: {axes: {head: heads, token: ~, dim: dim}, dtype: f32VARIANT}}}
storage: {LBHNC: "layer { block { head { token { k[dim] } } } }"}
"""
MODEL = """kvplan: 1
model: tiny
title: Tiny
dtype: bf16
query_heads: 32
layers: 2
caches:
  a: {layers: all, CACHE}
"""
AXIS = "kvplan: 1\nengine: ours\nextends: custom\ntitle: Ours\nmesh: {workers: [pp, pcp, tp, xp], layers: even}\n"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def put(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return put


def kind(split: str = "", own: str = "", variant: str = "") -> str:
    return KIND.replace("SPLIT", split).replace("OWN", own).replace("VARIANT", variant)


@pytest.mark.parametrize(
    "text",
    [kind(split="split: {head: tpp}"), kind(own=", split: {head: tpp}"), kind(variant=", split: {head: tpp}")],
)
def test_a_mesh_axis_that_no_engine_has_is_an_error(write: Write, text: str) -> None:
    path = write("pairs.yaml", text)
    (error,) = check([path])
    assert (error.code, error.message, error.help) == ("K008", "no engine has a mesh axis 'tpp'", "did you mean 'tp'?")
    assert error.span.text[error.span.column - 1 :].startswith("tpp")
    for known in ("tp", "dcp", "pp"):
        assert check([write("pairs.yaml", text.replace("tpp", known))]) == []


def test_an_axis_of_an_engine_of_ones_own_is_known(write: Write) -> None:
    path = write("pairs.yaml", kind(split="split: {head: xp}"))
    assert [error.code for error in check([path])] == ["K008"]
    assert check([path, write("ours.yaml", AXIS)]) == []


@pytest.mark.parametrize("axis", ["tokens: [dpc]", "interleave: tokens * tpp"])
def test_an_engines_own_axes_are_known(write: Write, axis: str) -> None:
    (error,) = check([write("ours.yaml", f"kvplan: 1\nengine: ours\nextends: custom\ntitle: Ours\nmesh: {{{axis}}}\n")])
    assert error.code in ("K008", "E005")


@pytest.mark.parametrize(("side", "code"), [("tpp=2", "S005"), ("tp=3", "C110"), ("tp=2", "")])
def test_the_sides_of_a_model_are_checked(write: Write, side: str, code: str) -> None:
    path = write("tiny.yaml", f'{MODEL.replace("CACHE", "kind: gqa, heads: 8, dim: 64")}sides: {{vllm: "{side}"}}\n')
    done = CliRunner().invoke(main, ["check", str(path)])
    assert (done.exit_code, f"error[{code}]" in done.output) == ((2, True) if code else (0, False))


@pytest.mark.parametrize(
    ("cache", "codes"),
    [
        ("kind: gqa, heads: 8, dim: 25", ["W003", "W003"]),
        ("kind: gqa, heads: 8, dim: 64, dim_v: 20", ["W003"]),
        ("kind: gqa, heads: 8, dim: 520", ["W003", "W003"]),
        ("kind: gqa, heads: 8, dim: 72", ["W003"]),
        ("kind: gqa, heads: 8, dim: 128", []),
        ("kind: cross-attention, heads: 8, dim: 25", ["W003"]),
        ("kind: cross-attention, heads: 64, dim: 64", ["W002"]),
        ("kind: gdn, key_heads: 32, value_heads: 16, key_dim: 128, conv: 4", ["W002"]),
        ("kind: gdn, key_heads: 16, value_heads: 32, key_dim: 128, conv: 4", []),
        ("kind: kda, key_heads: 32, value_heads: 16, value_dim: 128, conv: 4", ["W002"]),
        ("kind: mamba2, heads: 8, head_dim: 64, state: 128, groups: 64, conv: 4", ["W002"]),
        ("kind: mla, latent: 64, rope: 512", ["W002"]),
        ("kind: gqa, heads: 8, dim: 64, window: 512, needs: {window: 256}", ["W002"]),
        ("kind: gqa, heads: 8, dim: 64, window: 512, needs: {window: 512}", []),
        ("kind: compressed-latent, latent: 64, rope: 448", ["W002"]),
    ],
)
def test_numbers_that_are_not_expected_are_warnings(write: Write, cache: str, codes: list[str]) -> None:
    path = write("tiny.yaml", MODEL.replace("CACHE", cache))
    assert check([path]) == []
    found = doubts([path])
    assert [one.code for one in found] == codes
    for one in found:
        named = one.span.text[: one.span.column - 1].rstrip(": ").rpartition(" ")[2].strip("{")
        assert named in ("dim", "dim_v", "heads", "key_heads", "value_heads", "groups", "latent", "rope", "window")


def test_a_warning_says_which_engine_expects_what(write: Write) -> None:
    vllm, cpu = doubts([write("tiny.yaml", MODEL.replace("CACHE", "kind: gqa, heads: 8, dim: 25"))])
    assert vllm.message.startswith("vllm: heads of 25 and 25 elements")
    assert "FLASH_ATTN takes multiples of 8" in vllm.message
    assert cpu.message.startswith("vllm-cpu: CPU_ATTN has no kernel for heads of 25 elements")


def test_what_an_engine_expects_is_about_a_models_numbers(write: Write) -> None:
    """No side is known then, nor what is measured of one."""
    text = "kvplan: 1\nengine: ours\nextends: custom\ntitle: Ours\nexpect: [{for: gqa, that: WHAT, say: no}]\n"
    for wrong in ("block == 16", "tp == 1", "token_bytes == 4"):
        (error,) = check([write("ours.yaml", text.replace("WHAT", wrong))])
        assert error.code == "E005"
    ours = write("ours.yaml", text.replace("WHAT", "dim <= query_heads and not given(sink)"))
    assert check([ours]) == []
    path = write("tiny.yaml", MODEL.replace("CACHE", "kind: gqa, heads: 8, dim: 64"))
    assert [one.message for one in doubts([path], [ours.parent])] == ["ours: no"]


def test_no_shipped_model_has_unexpected_numbers() -> None:
    paths = [*(ROOT / "layouts/models").glob("*.yaml")]
    assert paths
    assert [one for one in doubts(paths) if one.code in ("W002", "W003")] == []
    assert load().mesh_axes >= {"tp", "pp", "pcp", "dcp"}


@pytest.mark.parametrize(
    ("cache", "codes"),
    [
        ("kind: gqa, heads: 8, dim: 128", ["W008"]),
        ("kind: mla, latent: 512, rope: 64, nope: 128", ["W008"]),
        ("kind: gdn, key_heads: 16, value_heads: 32, key_dim: 128, conv: 4", []),
    ],
)
def test_a_word_that_rules_read_and_the_model_lacks_is_a_warning(write: Write, cache: str, codes: list[str]) -> None:
    path = write("tiny.yaml", MODEL.replace("CACHE", cache).replace("query_heads: 32\n", ""))
    found = doubts([path])
    assert [one.code for one in found] == codes
    assert all("lacks 'query_heads', which rules about a read" in one.message for one in found)
    assert all(one.help == "add query_heads: …" for one in found)
    done = CliRunner().invoke(main, ["doctor", *_config(write), "--layout", str(path), "--no-machine"])
    assert ("(W008)" in done.output) == bool(codes)


def _config(write: Write) -> list[str]:
    return [str(write("config.json", '{"model_type": "tiny", "num_hidden_layers": 2, "num_attention_heads": 32}'))]
