"""The smallest real pair of SGLang engines, if SGLang is installed already; and the table that a run writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine_environment import UnavailableError
from tests.sglang import environment
from tests.sglang.__main__ import PAGE, TABLE, drawn, played, read
from tests.sglang.cases import CASES
from tests.sglang.play import alike, judged


@pytest.mark.vllm
@pytest.mark.xdist_group("vllm")
def test_tokens_of_a_pair_are_those_of_one_engine(tmp_path: Path) -> None:
    try:
        python = environment.cached()
    except UnavailableError as reason:
        pytest.skip(str(reason))
    assert played(python, tmp_path, CASES[:1]) == {CASES[0].name: "right"}


def test_the_page_has_a_row_for_every_case() -> None:
    (found,) = TABLE.finditer(PAGE.read_text())
    cells = read(found[2])
    assert [case.name for case in CASES] == [name for name in cells if name != "case" and set(name) != {"-"}]
    assert drawn(cells) in found[2]


ANSWER = {"tokens": [1, 2], "logprobs": [-0.5, -0.25]}


def test_other_tokens_and_other_logprobs_are_not_right() -> None:
    assert alike(ANSWER, ANSWER)
    assert not alike(ANSWER, {"tokens": [1, 3], "logprobs": [-0.5, -0.25]})
    assert not alike(ANSWER, {"tokens": [1, 2], "logprobs": [-0.5, -0.26]})
    assert not alike(ANSWER, {"error": "no answer"})


def test_a_case_is_right_only_if_all_of_it_is() -> None:
    case = next(case for case in CASES if not case.refused)
    assert judged(case, [ANSWER] * 2, [ANSWER] * 2) == "right"
    assert judged(case, [ANSWER] * 2, [ANSWER]).startswith("1 of 2 right")
    refused = next(case for case in CASES if case.refused)
    assert judged(refused, [], [{"error": f"the peer {refused.refused} x"}]) == "refused"
    assert judged(refused, [], [ANSWER]).startswith("not refused")
    assert judged(refused, [], []).startswith("not refused")
