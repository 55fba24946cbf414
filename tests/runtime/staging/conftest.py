"""Fixtures of the tests of stages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.runtime.helpers.staging import Gate

from kvplan.runtime import Counters


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    """A gate that stops copies on threads."""
    made = Gate(monkeypatch)
    yield made
    made.go.set()


@pytest.fixture
def counters() -> Counters:
    return Counters()
