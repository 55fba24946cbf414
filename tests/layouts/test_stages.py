"""Every shipped model between different numbers of pipeline stages, with groups of other layers on either side: the
names that a plan has for its values are told apart, and its text is read back as it was meant."""

from __future__ import annotations

import pytest
from tests.layouts.sweep import POOLED, library, some
from tests.shares import share, with_rest

from kvplan.compiler.api import compile_pair
from kvplan.compiler.errors import CompileError

STAGES = ((1, 2), (3, 1), (2, 3), (4, 2))
# Caches that are never in an engine's own pages have no stages.
MODELS = sorted({*library().models} - POOLED)
NOW = [name if name in some() else pytest.param(name, marks=pytest.mark.full) for name in MODELS]


@with_rest("half")
@pytest.mark.parametrize("model", NOW)
def test_stages_of_unlike_number_have_plans(model: str, rest: bool) -> None:
    """A pair that has none is refused by the compiler, with its reason: who reads plans raises another error."""
    made, needed = 0, library().model(model).sides.get(library().default_engine, "")
    for number, (theirs, ours) in share(enumerate(STAGES), MODELS.index(model) // 2, 2, rest):
        tp = 2 if number % 2 else 1
        one, other = (",".join(filter(None, (f"tp={tp},pp={stages}", needed))) for stages in (theirs, ours))
        try:
            compile_pair(library(), model, one, other)
        except CompileError:
            continue
        made += 1
    assert made, "no pair of stages has a plan"
