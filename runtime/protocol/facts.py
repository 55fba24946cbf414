"""Facts of a core that never change."""

from __future__ import annotations

from typing import Any


class Facts:
    """What no step changes: copies of a core share it."""

    __slots__ = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self
