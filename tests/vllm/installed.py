"""kvplan as Python's metadata has an installed package: vLLM finds its plugins there, and a checkout has none."""

from __future__ import annotations

import tomllib
from pathlib import Path

from tests.paths import ROOT


def describe(folder: Path) -> None:
    """Write kvplan's metadata, with the entry points of pyproject.toml, into a folder of PYTHONPATH."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    path = folder / "kvplan-0.dist-info"
    path.mkdir(exist_ok=True)
    (path / "METADATA").write_text("Metadata-Version: 2.1\nName: kvplan\nVersion: 0\n")
    groups = [[f"[{group}]", *(f"{name} = {value}" for name, value in points[group].items())] for group in points]
    (path / "entry_points.txt").write_text("".join(f"{line}\n" for group in groups for line in group))
