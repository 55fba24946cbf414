"""Plans are read by several threads at once: the parser of CPython 3.11 counts their depths together (gh-106905)."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.paths import ROOT

from kvplan.plan.files.module import read

PLANS = sorted((ROOT / "examples" / "plans").glob("*/*.py"), key=lambda path: path.stat().st_size)[:4]


@pytest.fixture
def switches() -> Iterator[None]:
    """Threads change places in the middle of a tree, when garbage is collected."""
    threshold = gc.get_threshold()
    gc.callbacks.append(_rest)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(_rest)


def _rest(phase: str, info: dict[str, int]) -> None:
    time.sleep(0)


@pytest.mark.usefixtures("switches")
def test_many_threads_read_plans() -> None:
    def digest(path: Path) -> str:
        return read(path.read_text(), path.name).digest

    alone = [digest(path) for path in PLANS]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(digest, PLANS * 3)) == alone * 3
