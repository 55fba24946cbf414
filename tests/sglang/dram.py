"""SGLang's own NIXL backend on a CPU: it says VRAM of every pool, and its pools lie in DRAM here."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

METHODS = ("register_memory", "get_reg_descs", "get_xfer_descs", "prep_xfer_dlist")


def install() -> None:
    """Have agents of NIXL take VRAM for DRAM."""
    from nixl._api import nixl_agent

    for name in METHODS:
        setattr(nixl_agent, name, _in_dram(getattr(nixl_agent, name)))


def _in_dram(method: Callable[..., Any]) -> Callable[..., Any]:
    def meant(value: Any) -> Any:
        return "DRAM" if isinstance(value, str) and value == "VRAM" else value

    @wraps(method)
    def call(self: Any, *values: Any, **named: Any) -> Any:
        return method(self, *map(meant, values), **{name: meant(value) for name, value in named.items()})

    return call
