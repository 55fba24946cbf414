"""Metadata from an encode engine to a prefill engine, through a router that may be anybody."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.integrations.vllm.encoder.metadata import RemoteItem, remote_items

ITEM = RemoteItem("encode", "r#1", "127.0.0.1", 7500, 64, 3, "key")


def test_what_is_told_is_read_as_it_was_meant() -> None:
    told = {"a": {**ITEM.params(), "metadata": {"image_grid_thw": [[1, 2, 3]]}, "item_indices": [0]}}
    assert remote_items(told) == {"a": ITEM}


@pytest.mark.parametrize(
    "change",
    [
        {"remote_host": ""}, {"remote_host": None}, {"remote_port": 0}, {"remote_port": 70000}, {"remote_port": "7500"},
        {"remote_num_rows": 0}, {"remote_num_rows": True}, {"remote_num_rows": -1}, {"remote_first_block": 1 << 60},
        {"remote_first_block": 1.5}, {"remote_request_id": "x" * 5000}, {"remote_request_id": "a\nb"},
        {"remote_key": 3}, {"remote_engine_id": ["encode"]},
    ],
)  # fmt: skip
def test_what_is_not_whole_is_as_if_it_were_not_said(change: dict[str, Any]) -> None:
    assert remote_items({"a": {**ITEM.params(), **change}, "b": ITEM.params()}) == {"b": ITEM}


@pytest.mark.parametrize("told", [None, "text", [], {"a": None}, {"a": []}, {3: ITEM.params()}, {"a": {}}])
def test_anything_may_be_sent(told: object) -> None:
    assert remote_items(told) == {}
