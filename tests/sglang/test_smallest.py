"""The smallest real pairs with SGLang engines, if these are installed already; and the tables that a run writes.

`make test` runs them, too, with one prefill engine for both: it takes half a minute of two cores.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine_environment import EngineEnvironment, UnavailableError
from tests.sglang import environment
from tests.sglang.cases import CASES, MODES, Fault
from tests.sglang.mixed import MixedPlayer
from tests.sglang.mixed_cases import SMALLEST
from tests.sglang.pair import alike
from tests.sglang.play import judged
from tests.sglang.run import played
from tests.sglang.table import OWN, PAGE, TABLE, TABLES, cell_of
from tests.vllm.environment import VLLM


def installed(engine: EngineEnvironment) -> Path | None:
    """The Python of an engine's environment; None if there is none."""
    try:
        return engine.cached()
    except UnavailableError:
        return None


@pytest.mark.xdist_group("engines")
def test_tokens_of_two_pairs_are_those_of_one_engine(tmp_path: Path) -> None:
    """SGLang prefills, vLLM and SGLang decode. Without vLLM there is SGLang's pair alone."""
    python, vllm = installed(environment.SGLANG), installed(VLLM)
    if python is None:
        pytest.skip("SGLang is not installed: `make sglang` installs it")
    if vllm is None:
        (found,) = played(python, tmp_path, CASES[:1])
        assert (found.case, found.word) == (CASES[0].name, "right"), found.why
        return
    with MixedPlayer(vllm, python, tmp_path) as player:
        outcome = player.play(SMALLEST)
    assert outcome.word == "right", outcome.why


def test_the_page_has_the_cells_of_every_case() -> None:
    page = {hit[2]: hit[3] for hit in TABLE.finditer(PAGE.read_text())}
    for table in TABLES:
        cells = table.read(page[table.word])
        assert table.drawn(cells) in page[table.word]
        assert len(cells) == len(table.rows) * len(table.columns)


def test_a_cell_stays_unless_its_case_ran() -> None:
    table = TABLES[1]
    (first, second) = [case for case in CASES if case.fault is Fault.PREFILL_FROZEN]
    cells = {cell_of(first, "kvplan"): "right", cell_of(second, "kvplan"): "**wrong**", cell_of(first, OWN): "failed"}
    assert {column for _, column in cells} == {*MODES, OWN}
    assert table.read(table.drawn(cells)).items() >= cells.items()


ANSWER = {"tokens": [1, 2], "logprobs": [-0.5, -0.25]}


def test_other_tokens_and_other_logprobs_are_not_right() -> None:
    assert alike(ANSWER, ANSWER, 1e-3)
    assert not alike(ANSWER, {"tokens": [1, 3], "logprobs": [-0.5, -0.25]}, 1e-3)
    assert not alike(ANSWER, {"tokens": [1, 2], "logprobs": [-0.5, -0.26]}, 1e-3)
    assert not alike(ANSWER, {"error": "no answer"}, 1e-3)
    certain = {"tokens": [1, 2], "logprobs": [0.0, 0.0]}
    assert not alike(certain, certain, 1e-3), "it would say the same of other caches"


def test_a_case_is_right_only_if_all_of_it_is() -> None:
    case = next(case for case in CASES if not case.refused)
    assert judged(case, [ANSWER] * 2, [ANSWER] * 2) == ("right", "")
    assert judged(case, [ANSWER] * 2, [ANSWER])[0] == "wrong"
    assert judged(case, [ANSWER] * 2, [ANSWER, {"error": "lost"}])[0] == "wrong"
    assert judged(case, [ANSWER], [{"error": "lost"}])[0] == "failed"
    refused = next(case for case in CASES if case.refused)
    assert judged(refused, [], [{"error": f"the peer {refused.refused} x"}])[0] == "refused"
    assert judged(refused, [ANSWER], [ANSWER])[0] == "wrong"
    assert judged(refused, [], [])[0] == "wrong"
    assert judged(refused, [ANSWER], [{"error": "another reason"}])[0] == "failed"
