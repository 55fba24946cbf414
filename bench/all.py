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
# Only where they are named: they need what not every machine has, or a machine that nobody else uses.
BESIDE = ("peers", "fleet", "gpu", "simulating")


def measure(names: Sequence[str], pairs: int, tell: Callable[[str], None] = lambda _: None) -> list[Row]:
    """The rows of the measurements in `names`, each module told to `tell` before it starts; without NIXL those that
    take it are not measured.
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
