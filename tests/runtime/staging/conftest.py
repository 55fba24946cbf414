"""What tests of stages share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.helpers.staging import Gate

from kvplan.runtime import Counters


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """Copies on threads stop at it."""
    made = Gate(monkeypatch)
    yield made
    made.go.set()


@pytest.fixture
def counters() -> Counters:
    return Counters()
