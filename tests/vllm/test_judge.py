"""The harness's own judgement: it has to see what is wrong, without an engine."""

from __future__ import annotations

import pytest
from tests.vllm.cases import CASES, Connector
from tests.vllm.judge import REFUSED_ONLY, Answer, Outcome, Verdict, compare, judge
from tests.vllm.pages import joined, unequal

ALONE = {"tokens": [5, 6, 7], "logprobs": [-1.0, -2.0, -3.0]}
ATTENTION = {"layer": {"from": 2, "rows": ["c", "d"]}}
STATE = {"layer": {"state": "s"}}


@pytest.mark.parametrize(
    ("loaded", "verdict"),
    [
        (ALONE, Verdict.RIGHT),
        ({"tokens": [], "reason": "error"}, Verdict.REFUSED),
        ({**ALONE, "tokens": [5, 6, 8]}, Verdict.WRONG),
        ({**ALONE, "tokens": [5, 6]}, Verdict.WRONG),
        ({**ALONE, "logprobs": [-1.0, -2.0, -3.1]}, Verdict.WRONG),
    ],
)
def test_an_answer_is_held_against_the_engine_alone(loaded: dict, verdict: Verdict) -> None:
    assert judge(loaded, ALONE).verdict is verdict


def test_where_bytes_decide_tokens_do_not() -> None:
    assert judge({**ALONE, "tokens": [1]}, ALONE, tokens_decide=False).verdict is Verdict.RIGHT


@pytest.mark.parametrize(
    ("sent", "loaded", "layers"),
    [
        ({"layer": {"from": 0, "rows": ["a", "b", "c", "d", "e"]}}, ATTENTION, []),
        ({"layer": {"from": 0, "rows": ["a", "b", "c", "x", "e"]}}, ATTENTION, ["layer"]),
        ({"layer": {"from": 0, "rows": ["a", "b", "c"]}}, ATTENTION, ["layer"]),
        ({"layer": {"from": 3, "rows": ["d", "e"]}}, ATTENTION, ["layer"]),
        ({}, ATTENTION, ["layer"]),
        (STATE, STATE, []),
        ({"layer": {"state": "t"}}, STATE, ["layer"]),
        ({}, STATE, ["layer"]),
    ],
)
def test_pages_are_compared_by_position(sent: dict, loaded: dict, layers: list[str]) -> None:
    assert unequal(sent, loaded) == layers


def test_other_bytes_are_wrong_though_the_tokens_are_right() -> None:
    assert compare(Answer(Verdict.RIGHT), {}, ATTENTION, decides=False).verdict is Verdict.WRONG
    assert compare(Answer(Verdict.RIGHT), {}, ATTENTION, decides=False, unsent="other.").verdict is Verdict.WRONG
    assert compare(Answer(Verdict.RIGHT), None, None, decides=True).verdict is Verdict.WRONG


RIGHT, WRONG = Answer(Verdict.RIGHT), Answer(Verdict.WRONG)


@pytest.mark.parametrize(
    ("outcome", "as_wanted", "word"),
    [
        (Outcome([RIGHT, RIGHT]), True, "right"),
        (Outcome([RIGHT, WRONG, RIGHT]), False, "**2 right, 1 wrong**"),
        (Outcome([Answer(Verdict.REFUSED, REFUSED_ONLY), RIGHT]), True, "1 right, 1 refused"),
        (Outcome([Answer(Verdict.REFUSED)]), False, "**refused**"),
        (Outcome([RIGHT], leaked="3 blocks leaked on decode"), False, "right, **3 blocks leaked on decode**"),
        (Outcome([RIGHT], stopped="hung"), False, "**hung**"),
        (Outcome(stopped="did not start"), False, "**did not start**"),
    ],
)
def test_what_a_case_comes_to(outcome: Outcome, as_wanted: bool, word: str) -> None:
    assert (outcome.as_wanted, outcome.word) == (as_wanted, word)


def test_names_of_cases_are_told_apart() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


def test_kvplan_runs_every_case() -> None:
    assert all(Connector.KVPLAN in case.connectors for case in CASES)


def test_pages_of_workers_are_joined_by_heads_and_by_stages() -> None:
    first = {"from": 0, "rows": [["a"], ["b"]], "latent": False}
    second = {"from": 0, "rows": [["c"], ["d"]], "latent": False}
    latent = {"from": 0, "rows": [["e"]], "latent": True}
    workers = [{"one": first, "two": latent}, {"one": second, "two": latent}, {"three": first}]
    layers = joined(workers)
    assert layers["one"]["rows"] == [["a", "c"], ["b", "d"]]
    assert layers["two"]["rows"] == [["e"]]
    assert layers["three"] == first
    assert joined([{"s": {"state": [["q"], ["k"]]}}, {"s": {"state": [["r"], ["l"]]}}]) == {
        "s": {"state": [["q", "r"], ["k", "l"]]}
    }
