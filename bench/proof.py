"""The times of compiling large sides, step by step, and the share of the proof."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from statistics import median, quantiles
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from kvplan.bench.report import Row
from kvplan.bench.sample import clock

if TYPE_CHECKING:
    from kvplan.dsl.library import Library

AREA = "proof, after bind+route+emit+parse"
MOST, LONGEST = 1 / 3, 1.0
Times = dict[str, float]
# The functions of each step of a compilation, in the order of their calls.
STEPS: Mapping[str, tuple[str, ...]] = {
    "bind": ("bind",),
    "route": ("check_pair", "placed", "_plan"),
    "emit": ("plan_cost", "emit"),
    "parse": ("parse",),
    "prove": ("prove",),
}
# Shapes that 64 workers can share, as large as existing models. All of them can share 192 query heads.
LAYERS, QUERY_HEADS = 80, 192
SHAPES: Mapping[str, str] = {
    "gqa": "{kind: gqa, layers: all, heads: 64, dim: 128}",
    "mla": "{kind: mla, layers: all, latent: 512, rope: 64}",
    "mamba2": "{kind: mamba2, layers: all, heads: 128, head_dim: 64, state: 128, groups: 1, conv: 4, ssm_dtype: f32}",
}
PAIRS = (
    ("gqa", "tp=64", "tp=64"),
    ("gqa", "tp=64,order=hnd", "tp=64,order=nhd"),
    ("gqa", "pp=2,tp=32", "pp=3,tp=64"),
    ("mla", "tp=64", "tp=64"),
    ("mamba2", "tp=64", "tp=64"),
)


def measure(pairs: int) -> list[Row]:
    """Measure: the proof under a third of a compilation, by medians, and each compilation under a second."""
    found = library()
    return [_row(f"{' '.join(pair[:2])} -> {pair[2]}", [steps(found, *pair) for _ in range(pairs)]) for pair in PAIRS]


@cache
def library() -> Library:
    """Return the shipped layouts and a model of every shape, each compiled once so that nothing is loaded later."""
    from kvplan.dsl.library import load

    with TemporaryDirectory() as folder:
        paths = [Path(folder) / f"bench-{name}.yaml" for name in SHAPES]
        for path, (name, shape) in zip(paths, SHAPES.items(), strict=True):
            path.write_text(_document(name, shape))
        found = load(paths)
        for pair in PAIRS:
            steps(found, *pair)
    return found


def _document(name: str, shape: str) -> str:
    head = ("kvplan: 1", f"model: bench-{name}", f"title: {name}", "dtype: bf16", f"query_heads: {QUERY_HEADS}")
    return "\n".join((*head, f"layers: {LAYERS}", "caches:", f"  {name}: {shape}", ""))


def steps(found: Library, shape: str, prefill: str, decode: str) -> Times:
    """Return the seconds of one compilation by step; `whole` is all of it."""
    from kvplan.compiler.api import compile_pair

    with _watched() as times:
        whole = clock(lambda: compile_pair(found, f"bench-{shape}", prefill, decode))
    return {**times, "whole": whole}


@contextmanager
def _watched() -> Iterator[Times]:
    """Yield the seconds that an otherwise normal compilation spends in each step."""
    from kvplan.compiler import api

    times = dict.fromkeys(STEPS, 0.0)
    with ExitStack() as stack:
        for step, functions in STEPS.items():
            for name in functions:
                stack.enter_context(patch.object(api, name, _timed(times, step, getattr(api, name))))
        yield times


def _timed(times: Times, step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        made: list[Any] = []
        times[step] += clock(lambda: made.append(function(*arguments, **named)))
        return made[0]

    return call


def _row(name: str, runs: list[Times]) -> Row:
    """Return the median share, and the median milliseconds of every step."""
    shares = [run["prove"] / run["whole"] for run in runs]
    low, middle, high = quantiles(shares, n=4, method="inclusive")
    ms = {step: 1000 * median(run[step] for run in runs) for step in (*STEPS, "whole")}
    parts = "+".join(f"{ms[step]:.0f}" for step in STEPS)
    value = f"{middle:.2f} of {ms['whole']:.0f} ms ({parts})"
    met = middle <= MOST and ms["whole"] <= 1000 * LONGEST
    return Row(
        AREA, name, value, f"at most {MOST:.2f}, {LONGEST:g} s", met, f"{low:.2f}..{high:.2f}", len(runs), {**ms}
    )
