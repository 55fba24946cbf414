"""The plan's tables of a request, from the pages and slots that SGLang names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kvplan.integrations.sglang.limits import STATES
from kvplan.plan.block_tables import Slot, Table
from kvplan.plan.types import Blocks, Interval, Side


class RequestTables:
    """Tables by group of one side. All groups of tokens share the pages of one pool, `page` tokens each.

    `components` are SGLang's state components by type, which hold the slots of recurrent states.
    """

    def __init__(self, side: Side, components: Sequence[str]) -> None:
        self._paged = tuple(group.name for group in side.groups if group.store == "tokens")
        self._states = tuple(group.name for group in side.groups if group.store == "state")
        self._component = components.index(STATES) if STATES in components else None
        self._page = next((group.tokens for group in side.groups if group.store == "tokens"), 1)

    def chunk(self, tokens: Interval, pages: npt.ArrayLike) -> dict[str, Table]:
        """Return the pages of tokens [first, end); `first` begins a page. Trailing pages are left out."""
        first, end = tokens
        count = -(-end // self._page) - first // self._page
        ids = np.asarray(pages, np.int64)[:count]
        return {name: Blocks(first // self._page, ids) for name in self._paged}

    def states(self, components: Sequence[Any] | None, tokens: int) -> dict[str, Table]:
        """Return the slots of the states after `tokens` tokens; none if SGLang names none."""
        if self._component is None or components is None:
            return {}
        slots = components[self._component]
        return {} if slots is None else {name: Slot(int(slots[0]), tokens) for name in self._states}
