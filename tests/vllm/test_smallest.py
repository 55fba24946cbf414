"""The smallest real pairs: two vLLM engines with different blocks, and a hybrid, where vLLM is installed already."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.vllm import environment
from tests.vllm.__main__ import run
from tests.vllm.cases import CASES, Case, Connector
from tests.vllm.judge import Outcome
from tests.vllm.process import Launcher

SMALLEST = [case for case in CASES if case.smallest]
pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm")]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[Case, Outcome]]:
    with Launcher(python(), tmp_path_factory.mktemp("vllm")) as launcher:
        yield dict(run(launcher, SMALLEST, Connector.KVPLAN))


def python() -> Path:
    try:
        return environment.cached()
    except environment.UnavailableError as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize("case", SMALLEST, ids=lambda case: case.name)
def test_tokens_are_those_of_one_engine(case: Case, outcomes: dict[Case, Outcome]) -> None:
    assert outcomes[case].word == "right", outcomes[case]
