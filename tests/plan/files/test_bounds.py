"""A small text never stands for more values than there is memory: the reader counts what constants stand for."""

from __future__ import annotations

import pytest
from tests.paths import ROOT

from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files import module

PLAN = (ROOT / "examples/plans/llama_3_1_8b/p_tp4__d_tp2.py").read_text()
HEAD, _, _ = PLAN.partition("\n# What each decode worker reads")


def doubled(times: int) -> str:
    lines = ["A0 = (1, 2)", *(f"A{n + 1} = (A{n}, A{n})" for n in range(times))]
    return "\n".join([HEAD, *lines, ""])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (doubled(40), "there are more than"),
        (f"{HEAD}\n# {'x' * module.MOST_TEXT}\n", "characters, a plan at most"),
        ("\n".join([HEAD, *(f"A{n} = tuple(range(1, 65537))" for n in range(100)), ""]), "there are more than"),
        (f"{HEAD}\nA = 0x{'f' * 20_000}\n", "more than 64 bits"),
        (f"{HEAD}\nA = -0x{'f' * 17}\n", "more than 64 bits"),
    ],
    ids=["doubled", "a long text", "ranges", "a long number", "a long number below zero"],
)
def test_what_stands_for_too_much_is_refused(text: str, why: str) -> None:
    with pytest.raises(PlanFormatError, match=why):
        module.read(text, "plan")


def test_plans_are_far_below_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_VALUES", module.MOST_VALUES // 16)
    for path in (ROOT / "examples/plans").glob("*/*.py"):
        module.read(path.read_text(), path.name)
