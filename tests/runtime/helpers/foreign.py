"""Questions for a buffer that nobody may ask, and what is said of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from kvplan.runtime.control.messages import AskBuffer, pack_runs, unpack_runs

FOREIGN: dict[str, tuple[Callable[[AskBuffer], AskBuffer], str]] = {
    "an unknown request": (lambda asked: replaced(asked, request="other"), "is not held|not held"),
    "an unknown read": (lambda asked: with_part(asked, read=99), "none that is staged here"),
    "an unknown part": (lambda asked: with_part(asked, part=99), "none that is staged here"),
    "another size": (lambda asked: with_part(asked, size=1), "none that is staged here"),
    "layers that there are not": (lambda asked: replaced(asked, layers=(77,)), "none that is staged here"),
    "a block below": (lambda asked: with_runs(asked, 0, -1), "a block is asked for that there is not"),
    "a block above": (lambda asked: with_runs(asked, 0, 1 << 40), "a block is asked for that there is not"),
    "a target below": (lambda asked: with_runs(asked, 2, -1), "a block is asked for that there is not"),
    "a row below": (lambda asked: with_runs(asked, 1, -1), "rows are asked for that no page has"),
    "a row above": (lambda asked: with_runs(asked, 1, (1 << 63) - 1), "rows are asked for that no page has"),
    "a target row above": (lambda asked: with_runs(asked, 3, 2), "rows are asked for that no page has"),
    "no rows": (lambda asked: with_runs(asked, 4, 0), "rows are asked for that no page has"),
    "nothing": (lambda asked: with_part(asked, runs=(b"",) * 5), "nothing is asked for"),
    "columns of unlike lengths": (lambda asked: with_part(asked, runs=(b"", *(bytes(8),) * 4)), "in all of them"),
    "more than a buffer has": (lambda asked: replaced(asked, parts=asked.parts * 64), "does not fit a buffer"),
}


def replaced(asked: AskBuffer, **change: Any) -> AskBuffer:
    return msgspec.structs.replace(asked, **change)


def with_part(asked: AskBuffer, **change: Any) -> AskBuffer:
    return replaced(asked, parts=(msgspec.structs.replace(asked.parts[0], **change),))


def with_runs(asked: AskBuffer, column: int, value: int) -> AskBuffer:
    """A question whose first part has a column of that value."""
    runs = list(unpack_runs(asked.parts[0].runs))
    runs[column] = np.full_like(runs[column], value)
    return with_part(asked, runs=pack_runs(type(unpack_runs(asked.parts[0].runs))(*runs)))
