"""Compile options: what a plan is compiled with besides its two sides."""

from __future__ import annotations

from collections.abc import Mapping

DIRECT, AUTO = "direct", "auto"
# Options and their allowed values, the default first.
OPTIONS: Mapping[str, tuple[str, ...]] = {"elect": ("one", "spread"), "strategy": (DIRECT, AUTO, "unpack", "pack")}
# The option that names the machine whose profile chooses the strategy; without it the default machine does.
MACHINE = "machine"
