"""Compile options: what a plan is compiled with beside its two sides."""

from __future__ import annotations

from collections.abc import Mapping

DIRECT, AUTO = "direct", "auto"
# Options with the values that they may have, the default first.
OPTIONS: Mapping[str, tuple[str, ...]] = {"elect": ("one", "spread"), "strategy": (DIRECT, AUTO, "unpack", "pack")}
# The option that names the machine by whose profile a strategy is chosen, where that is not the default one.
MACHINE = "machine"
