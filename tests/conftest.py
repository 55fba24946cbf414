"""Settings of all tests: derandomised property tests, a lazy garbage collector, a count of tests that did not run."""

from __future__ import annotations

import gc
import os

import pytest
from hypothesis import HealthCheck, settings

# HYPOTHESIS_PROFILE=explore looks for new examples; what make runs is the same every time.
settings.register_profile("ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
# pytest-xdist tells its workers how wide the terminal is, and a shell may: answers would be wrapped at that.
os.environ.pop("COLUMNS", None)
# Imported modules and collected tests stay: until the first test there is no garbage to find.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests run in one worker, which makes their shared fixtures once, unless they name another group."""
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """Keep the garbage collector from visiting collected tests again and again, which takes a seventh of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why tests were skipped, each reason once with its count."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        terminalreporter.write_line(f"{count} not run: {reason.removeprefix('Skipped: ')}")
