"""Compile one pair, import its plan, compile every pair of the shipped models: times on one core."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from kvplan.bench.report import Row
from kvplan.bench.sample import clock

if TYPE_CHECKING:
    from kvplan.compiler.api import Compiled

AREA = "compiling"
SIZES = (1, 2, 4, 8, 16)
SIDES = ("tp=4", "tp=2")
# Seconds on one core: of one compile, of importing a plan, and of all models over all pairs of sizes.
ONE, IMPORT, ALL = 0.050, 0.005, 60.0


def measure(pairs: int) -> list[Row]:
    """Measure: one compile under 50 ms, importing a plan under 5 ms, all models x 25 pairs under a minute."""
    from kvplan.compiler.api import compile_pair
    from kvplan.dsl.library import load

    library = load()
    made = {name: found for name in library.models if (found := _one(library, name))}
    singles = {name: [clock(partial(compile_pair, library, name, *SIDES)) for _ in range(pairs)] for name in made}
    with tempfile.TemporaryDirectory() as folder:
        imports = {name: _imports(Path(folder), name, found, pairs) for name, found in made.items()}
    rows = [
        _row("one compile, the slowest model", singles, ONE),
        _row("importing a plan, the slowest", imports, IMPORT),
    ]
    return [*rows, _all(library)]


def _one(library: Any, model: str) -> Compiled | None:
    """Compile the plan of one pair, None if a model cannot run on one of the sides."""
    from kvplan.compiler.api import compile_pair
    from kvplan.compiler.errors import Refused

    try:
        return compile_pair(library, model, *SIDES)
    except Refused:
        return None


def _imports(folder: Path, name: str, made: Compiled, pairs: int) -> list[float]:
    """Time imports of the plan like Python's: the source is compiled again each time, without cached byte code."""
    path = folder / f"{Path(made.path).stem}_{len(name)}.py"
    path.write_text(made.text)
    return [clock(lambda: _import(path)) for _ in range(pairs)]


def _import(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("bench_plan", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = kept
    return module


def _row(name: str, times: Mapping[str, list[float]], budget: float) -> Row:
    model = max(times, key=lambda key: median(times[key]))
    low, middle, high = (1000 * value for value in quantiles(times[model], n=4, method="inclusive"))
    details: dict[str, object] = {key: 1000 * median(values) for key, values in times.items()}
    spread, count = f"{low:.2f}..{high:.2f}", len(times[model])
    met = middle <= 1000 * budget
    return Row(
        AREA, f"{name} ({model})", f"{middle:.2f} ms", f"under {1000 * budget:g} ms", met, spread, count, details
    )


def _all(library: Any) -> Row:
    from kvplan.compiler.api import compile_pair
    from kvplan.compiler.errors import CompileError

    done, refused = 0, 0

    def every() -> None:
        nonlocal done, refused
        for model, prefill, decode in product(library.models, SIZES, SIZES):
            try:
                compile_pair(library, model, f"tp={prefill}", f"tp={decode}")
                done += 1
            except CompileError:
                refused += 1

    taken = clock(every)
    name = f"all {len(library.models)} models x {len(SIZES) ** 2} pairs"
    details: dict[str, object] = {"compiled": done, "refused": refused, "seconds": taken}
    each = taken / max(done, 1)
    found = f"{taken:.2f} s, {1000 * each:.0f} ms a plan, {refused} refused"
    return Row(AREA, name, found, f"under {ALL:.0f} s", taken <= ALL, "", 1, details)
