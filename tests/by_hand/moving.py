"""Run kvplan's copies for one request by memcpy, on buffers that were filled by hand."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from tests.by_hand.slicing import UNTOUCHED, Buffers, apply

from kvplan.compiler.api import compile_pair
from kvplan.compiler.check.request import parse
from kvplan.compiler.check.trace import copies
from kvplan.dsl.library import load


@cache
def library() -> Any:
    """The shipped layouts and small models."""
    return load((), (Path(__file__).parent / "layouts",))


def moved(model: str, sides: tuple[str, str], request: dict[str, Any], source: Buffers, target: Buffers) -> Buffers:
    """The decode buffers after every copy of the request's trace."""
    plan = compile_pair(library(), model, *sides).plan
    got = {key: np.full_like(buffer, UNTOUCHED) for key, buffer in target.items()}
    apply(copies(plan, parse(request)), source, got)
    return got


def same(got: Buffers, want: Buffers) -> None:
    for (worker, plane), buffer in want.items():
        wrong = np.flatnonzero(got[worker, plane] != buffer)
        assert not wrong.size, f"worker {worker} {plane}: {wrong.size} bytes wrong, the first at {wrong[0]}"
