"""Cases of a vLLM and an SGLang engine: what an answer comes to, and the smallest pair if both are installed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.engine_environment import UnavailableError
from tests.sglang import environment
from tests.sglang.mixed import MixedOutcome, MixedPlayer, answer_of, change, compared
from tests.sglang.mixed_cases import MIXED, SGLANG, VLLM
from tests.vllm import environment as of_vllm


@pytest.mark.vllm
@pytest.mark.xdist_group("vllm")
def test_text_of_a_pair_is_that_of_one_engine(tmp_path: Path) -> None:
    try:
        python, vllm = environment.cached(), of_vllm.cached()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    with MixedPlayer(vllm, python, tmp_path) as player:
        found = player.play(MIXED[0])
    assert found.word == "right", found.why


def test_every_pair_is_played_either_way_round() -> None:
    names = {case.name for case in MIXED}
    assert len(names) == len(MIXED)
    ways = {way: {(c.block, c.page, c.model, str(c.config), c.refused) for c in MIXED if c.prefill == way}
            for way in (VLLM, SGLANG)}  # fmt: skip
    assert ways[VLLM] == ways[SGLANG]


def test_an_answer_is_its_text_without_blanks_and_its_logprobs() -> None:
    pieces = [
        {"text": " aab", "logprobs": {"token_logprobs": [-0.5]}},
        {"text": " aac ", "logprobs": {"token_logprobs": [-1.0]}, "finish_reason": "length"},
    ]
    chat = [{"message": {"content": "aab aac"}, "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -1.0}]}}]
    assert answer_of(pieces) == answer_of(chat) == {"text": "aabaac", "logprobs": [-0.5, -1.0]}
    assert answer_of([]) == {"text": "", "logprobs": []}


def test_other_text_other_logprobs_and_too_few_are_not_right() -> None:
    wanted = {"text": "aabaac", "logprobs": [-0.5, -1.0]}
    assert compared(wanted, wanted, 2) == ("", 0.0)
    assert "instead of" in compared({**wanted, "text": "aab"}, wanted, 2)[0]
    assert "instead of" in compared(wanted, wanted, 3)[0]
    assert compared({**wanted, "logprobs": [-0.5, -1.1]}, wanted, 2)[0] == "a logprob is off by 1.0e-01"
    certain = {**wanted, "logprobs": [0.0, 0.0]}
    assert "is certain of every token" in compared(certain, certain, 2)[0], "it would say the same of other caches"


@pytest.mark.parametrize(("gap", "text"), [(None, ""), (0.0, "0e+00"), (6.4e-6, "7e-06"), (1e-5, "1e-05")])
def test_a_distance_is_rounded_up(gap: float | None, text: str) -> None:
    assert MixedOutcome("", "right", gap=gap).within == text


def test_changed_weights_differ_in_every_weight_and_nowhere_else(tmp_path: Path) -> None:
    head, weights = b'{"a": 1}', np.arange(40, dtype=np.uint16)
    path = tmp_path / "weights"
    path.write_bytes(len(head).to_bytes(8, "little") + head + weights.tobytes())
    change(path)
    data = path.read_bytes()
    assert data[: 8 + len(head)] == len(head).to_bytes(8, "little") + head
    assert (np.frombuffer(data[8 + len(head) :], np.uint16) ^ weights == 1).all()
