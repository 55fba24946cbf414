"""The bench of compilations: every shipped model that runs on its sides is measured."""

from __future__ import annotations

from kvplan.bench.compiling import _one
from kvplan.dsl.library import load


def test_models_that_cannot_run_on_its_sides_are_left_out() -> None:
    library = load()
    found = {name: _one(library, name) for name in ("llama-3.1-8b", "falcon-h1-34b")}
    assert found["llama-3.1-8b"]
    assert found["falcon-h1-34b"] is None
