"""Parameters that two engines exchange through a router are written, read, and refused if they are incomplete."""

from __future__ import annotations

import hashlib
import json
import pickle
import struct
from dataclasses import replace
from typing import Any

import pytest
from tests.integrations.vllm.requests import STATE, TOKENS, held

from kvplan.integrations.shared.names import prompt_digest
from kvplan.integrations.vllm.metadata import (
    HoldOrder,
    LoadOrder,
    PromptChunk,
    StepOrders,
    remote_prefill,
    transfer_params,
)

HELD = held(40, (3, 9, 4), (7,), groups=(TOKENS, STATE))

# Without a digest the parameters are read, and the prompt computed here.
NOT_NEEDED = {"do_remote_prefill", "do_remote_decode", "remote_prompt", "tp_size"}


def params() -> dict[str, Any]:
    """The parameters as a router forwards them."""
    return json.loads(json.dumps(transfer_params(HELD, 2)))


def test_what_is_written_is_read() -> None:
    assert remote_prefill(params()) == HELD


def test_what_is_kept_for_the_next_turn_is_written_and_read() -> None:
    kept = replace(HELD, until=1790000000.5)
    said = json.loads(json.dumps(transfer_params(kept, 2)))
    assert (said["do_remote_prefill"], said["do_remote_decode"]) == (False, True)
    assert remote_prefill(said) == kept
    assert "remote_blocks_expiry_time" not in params()


def test_names_are_those_of_the_engine_s_own_connector() -> None:
    assert {"do_remote_prefill", "do_remote_decode", "remote_engine_id", "remote_block_ids", "remote_host"} <= set(
        params()
    )
    assert {"remote_port", "remote_request_id", "tp_size"} <= set(params())


@pytest.mark.parametrize(
    "change",
    [
        {"remote_engine_id": ""},
        {"remote_engine_id": 3},
        {"remote_request_id": None},
        {"remote_host": "h" * 5000},
        {"remote_port": 0},
        {"remote_port": "7600"},
        {"remote_num_tokens": -1},
        {"remote_num_tokens": True},
        {"remote_block_ids": None},
        {"remote_block_ids": [[1]]},
        {"remote_block_ids": [[1], ["2"]]},
        {"remote_block_ids": [[1], [1 << 70]]},
        {"remote_block_ids": [[1] * 105, [7]]},
        {"remote_groups": [["kv", "tokens"]] * 5000, "remote_block_ids": [[1]] * 5000},
        {"remote_groups": [["kv"], ["state", "state", "x"]]},
        {"remote_groups": "kv"},
        {"remote_key": 5},
        {"remote_key": "\ud800"},
        {"remote_prompt": 5},
        {"remote_blocks_expiry_time": "later"},
        {"remote_blocks_expiry_time": -1.0},
        {"remote_blocks_expiry_time": True},
    ],
)
def test_what_is_not_whole_is_none(change: dict[str, Any]) -> None:
    assert remote_prefill({**params(), **change}) is None


def test_drafts_may_have_blocks_behind_the_tokens() -> None:
    assert remote_prefill({**params(), "remote_block_ids": [[1] * 104, [7]]}) is not None


@pytest.mark.parametrize("name", sorted({*transfer_params(HELD, 2)} - NOT_NEEDED))
def test_what_lacks_is_none(name: str) -> None:
    assert remote_prefill({key: value for key, value in params().items() if key != name}) is None


def test_a_digest_is_that_of_the_prompt() -> None:
    digests = [
        prompt_digest([1, 2]),
        prompt_digest([2, 1]),
        prompt_digest([1, 2, 0]),
        prompt_digest([1, 2], ["x"]),
        prompt_digest([1, 2], ["x", "y"]),
        prompt_digest([1, 2], ["xy"]),
    ]
    assert len(set(digests)) == len(digests)
    assert prompt_digest([1, 2]) == hashlib.sha256(struct.pack("<2q", 1, 2)).hexdigest()[:32]


def test_orders_travel_between_processes() -> None:
    orders = StepOrders(
        (HoldOrder("r", 40, ((1,),), "p", "t"),),
        (LoadOrder("q", (0, 39), ((2,),), HELD),),
        ("x",),
        ("tcp://h:1",),
        chunks=(PromptChunk("u", (0, 32), 39, ((1, 2),)),),
        withdrawals=("v",),
    )
    assert pickle.loads(pickle.dumps(orders)) == orders
