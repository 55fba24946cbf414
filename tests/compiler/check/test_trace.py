"""Trace: the issue's own example, whole hits, and the answer's shape."""

import pytest

from kvplan.compiler.api import Compiled, compile_pair
from kvplan.compiler.check.request import parse
from kvplan.compiler.check.trace import trace
from kvplan.compiler.errors import BadInput
from kvplan.dsl.library import load

SIDE = "kv_dtype=fp8,kernel_block=16"


@pytest.fixture(scope="module")
def hybrid() -> Compiled:
    return compile_pair(load(), "nemotron-3-nano-30b", f"tp=4,{SIDE}", f"tp=1,{SIDE}")


def request(first: int, end: int, ids=(3, 1)):
    states: dict[str, dict[str, object]] = {f"mamba.{i}": {"slot": 20 + i, "at": end} for i in range(4)}
    prefill = {"attention": {"first": 0, "ids": [4, 11, 7]}, **states}
    decode = {"attention": {"first": 0, "ids": list(ids)}, **states}
    return parse({"tokens": [first, end], "prefill": prefill, "decode": decode})


def test_kernel_blocks_are_counted_by_the_owners_ratio(hybrid: Compiled) -> None:
    found = trace(hybrid.plan, hybrid.prefill, hybrid.decode, request(0, 5000))
    one = {
        "from": {"worker": 0, "plane": "attention.5", "offset": 2146304},
        "to": {"worker": 0, "plane": "attention.5", "offset": 6414336},
        "bytes": 4096,
    }
    assert one in found["copies"]
    assert found["decode"]["workers"][0]["planes"]["attention.5"] == {
        "cache": "attention", "layer": 5, "head": None, "part": None, "block_stride": 8192, "blocks": 24 * 261
    }  # fmt: skip
    assert sum(copy["bytes"] for copy in found["copies"]) == 6 * 512 * 5000 + 23 * 2_134_016


def test_nothing_before_the_first_token_and_nothing_behind_the_end(hybrid: Compiled) -> None:
    found = trace(hybrid.plan, hybrid.prefill, hybrid.decode, request(4999, 5000))
    tokens = [copy for copy in found["copies"] if copy["to"]["plane"] == "attention.5"]
    assert [copy["bytes"] for copy in tokens] == [256, 256]


def test_a_whole_hit_copies_nothing(hybrid: Compiled) -> None:
    assert trace(hybrid.plan, hybrid.prefill, hybrid.decode, request(5000, 5000))["copies"] == []


@pytest.mark.parametrize(("ids", "code"), [((3,), "Q011"), ((3, None), "Q011"), ((3, 3), "Q013"), ((3, 20), "Q013")])
def test_bad_tables_are_named(hybrid: Compiled, ids, code: str) -> None:
    with pytest.raises(BadInput) as caught:
        trace(hybrid.plan, hybrid.prefill, hybrid.decode, request(0, 5000, ids))
    assert caught.value.code == code
