"""What a simulation says it compared."""

from __future__ import annotations

import pytest

from kvplan.compiler.check.simulate_report import SimulationReport


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (SimulationReport(1, 1, 1, 1), "compared 1 byte in 1 plane of 1 decode worker, written by 1 copy: "),
        (
            SimulationReport(2, 1000, 1234, 68),
            "compared 68 bytes in 1,000 planes of 2 decode workers, written by 1,234 copies: ",
        ),
        (SimulationReport(1, 0, 0, 0), "compared 0 bytes in 0 planes of 1 decode worker, written by 0 copies: "),
    ],
)
def test_counts_agree_with_their_words(report: SimulationReport, said: str) -> None:
    assert report.right
    assert report.text().startswith(said)
