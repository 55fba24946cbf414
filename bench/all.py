"""Every measurement by name, and how to run some of them."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence

from kvplan.bench.report import Row, skipped
from kvplan.runtime.errors import NixlMissingError

MEASUREMENTS = (
    "hot",
    "lists",
    "preparing",
    "descriptors",
    "predicting",
    "homogeneous",
    "hybrids",
    "layers",
    "staging",
    "rounds",
    "many",
    "busy",
    "idle",
    "checksum",
    "store",
    "compiling",
    "proof",
    "curves",
)
# Only run by name: these need what not every machine has, or an otherwise idle machine.
BESIDE = ("peers", "fleet", "gpu", "simulating")


def measure(names: Sequence[str], pairs: int, tell: Callable[[str], None] = lambda _: None) -> list[Row]:
    """Return the rows of the measurements in `names`; `tell` gets each name before it starts. Without NIXL those that
    need it are skipped.
    """
    rows: list[Row] = []
    for name in names:
        tell(name)
        module = importlib.import_module(f"kvplan.bench.{name}")
        try:
            rows += module.measure(pairs)
        except NixlMissingError as error:
            rows.append(skipped(module.AREA, str(error)))
    return rows
