"""The table of what runs, beside the one that vLLM publishes. Run as a program it writes it into the pages.

kvplan's column is made by the matrix of a model that stands for its kind; NixlConnector's is what vLLM's documentation
says (docs/features/nixl_connector_compatibility.md of vLLM, in November 2026), not what was measured here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.paths import DOCS, ROOT

from kvplan.compiler.explain.matrix import MatrixCell, PairCost, matrix
from kvplan.compiler.options import AUTO, DIRECT
from kvplan.dsl.library import load

BEGIN, END = "<!-- table: compatibility -->\n", "<!-- end of table -->"
# A word beside each sign: a screen reader says the word, and fonts without the sign still show it.
YES, PARTLY, NO, OPEN = "✅ yes", "🟠 partly", "❌ no", "❔ not said"


@dataclass(frozen=True, slots=True)
class UnlikeSides:
    """A way in which two engines differ: its heading and the two sides, `{a}` and `{b}` being a model's two blocks."""

    heading: str
    prefill: str
    decode: str


@dataclass(frozen=True, slots=True)
class ModelKind:
    """A row of vLLM's table: the model that stands for it, two block sizes, and vLLM's word for each of WAYS."""

    name: str
    model: str
    blocks: tuple[int, int]
    published: tuple[str, ...]


WAYS = (
    UnlikeSides("identical", "tp=4", "tp=4"),
    UnlikeSides("tp 4 → 2", "tp=4", "tp=2"),
    UnlikeSides("tp 2 → 4", "tp=2", "tp=4"),
    UnlikeSides("larger blocks", "tp=4,block={a}", "tp=4,block={b}"),
    UnlikeSides("smaller blocks", "tp=4,block={b}", "tp=4,block={a}"),
    UnlikeSides("HND → NHD", "tp=4,order=hnd", "tp=4,order=nhd"),
    UnlikeSides("cross-layer → by layer", "tp=4,order=BLHNC", "tp=4,order=LBHNC"),
)
KINDS = (
    ModelKind("Dense", "llama-3.1-8b", (16, 32), (YES, YES, YES, YES, NO, PARTLY, OPEN)),
    ModelKind("Sliding windows", "gemma-3-27b", (16, 32), (YES, YES, YES, NO, NO, NO, OPEN)),
    ModelKind("MoE", "mixtral-8x7b", (16, 32), (YES, YES, YES, YES, NO, PARTLY, OPEN)),
    ModelKind("MLA", "deepseek-v3", (64, 128), (YES, YES, YES, YES, NO, OPEN, OPEN)),
    ModelKind("Sparse MLA", "deepseek-v3.2", (64, 128), (YES, YES, YES, YES, NO, OPEN, OPEN)),
    ModelKind("Hybrid SSM", "nemotron-3-nano-30b", (1056, 2112), (YES, NO, NO, NO, NO, NO, NO)),
    ModelKind("Multimodal", "mistral-small-3.1-24b", (16, 32), (OPEN,) * len(WAYS)),
    ModelKind("Encoder–decoder", "whisper-large-v3", (16, 32), (NO,) * len(WAYS)),
)
# Pairs with engines of other vendors: the model and the two sides.
VENDORS = (
    ("llama-3.1-8b", "engine=ascend,tp=2", "tp=2"),
    ("llama-3.1-8b", "engine=ascend,order=nz,tp=2", "tp=2"),
    ("deepseek-v3", "engine=ascend,tp=8", "tp=8"),
    ("deepseek-v3", "tp=8", "engine=ascend,order=nz,tp=8"),
    ("llama-3.1-8b", "engine=rbln,block=1024,tp=2", "tp=2"),
    ("deepseek-v3", "engine=rbln,block=1024,tp=8", "tp=8"),
    ("llama-3.1-8b", "engine=gaudi,tp=2", "tp=2"),
)


def sides(kind: ModelKind, way: UnlikeSides) -> tuple[str, str]:
    a, b = kind.blocks
    return way.prefill.format(a=a, b=b), way.decode.format(a=a, b=b)


@cache
def cell(kind: ModelKind, way: UnlikeSides) -> MatrixCell:
    prefill, decode = sides(kind, way)
    (found,) = matrix(load(), kind.model, [prefill], [decode])
    return found


def mark(found: MatrixCell) -> str:
    return YES if isinstance(found.outcome, PairCost) else f"{NO} {found.outcome.code}"


def table(kinds: Sequence[ModelKind] = KINDS) -> str:
    """Two rows a kind of model, a column for each way in which its sides differ."""
    head = ["model", "connector", *(way.heading for way in WAYS)]
    rows = [head, ["---"] * len(head)]
    for kind in kinds:
        rows.append([kind.name, "NixlConnector", *kind.published])
        rows.append([f"`{kind.model}`", "**kvplan**", *(mark(cell(kind, way)) for way in WAYS)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def commands() -> str:
    """A section for each kind of model: what each cell costs, and the command that shows it."""
    return "\n".join(f"### {kind.name}: {kind.model}\n\n{_costs(kind)}" for kind in KINDS)


def _costs(kind: ModelKind) -> str:
    lines = ["| sides | descriptors | MiB | command |", "|---|---|---|---|"]
    for way in WAYS:
        prefill, decode = sides(kind, way)
        command = f"kvplan matrix {kind.model} --prefill {prefill} --decode {decode}"
        lines.append(f"| {way.heading} | {_cost(cell(kind, way))} | `{command}` |")
    return "\n".join(lines) + "\n"


def _cost(found: MatrixCell) -> str:
    if not isinstance(found.outcome, PairCost):
        return f"refused, {found.outcome.code} | –"
    return f"{found.outcome.descriptors:,} | {found.outcome.bytes / 2**20:,.1f}"


def vendors() -> str:
    """A row for each pair across vendors: its descriptors by either strategy, and the command that says more."""
    lines = ["| model | prefill | decode | direct | staged | command |", "|---|---|---|---|---|---|"]
    for model, prefill, decode in VENDORS:
        costs = [_descriptors(model, prefill, decode, strategy) for strategy in (DIRECT, AUTO)]
        command = f"kvplan advise {model} --prefill {prefill} --decode {decode}"
        lines.append(f"| {model} | `{prefill}` | `{decode}` | {' | '.join(costs)} | `{command}` |")
    return "\n".join(lines) + "\n"


def _descriptors(model: str, prefill: str, decode: str, strategy: str) -> str:
    (found,) = matrix(load(), model, [prefill], [decode], {"strategy": strategy})
    assert isinstance(found.outcome, PairCost), found.outcome
    return f"{found.outcome.descriptors:,}"


def front() -> str:
    """README's: the kinds of model that differ most in what is asked of a connector."""
    return table([kind for kind in KINDS if kind.name in ("Dense", "Sliding windows", "MLA", "Hybrid SSM")])


MADE: dict[Path, tuple[Callable[[], str], ...]] = {
    ROOT / "README.md": (front,),
    DOCS / "compatibility.md": (table, vendors, commands),
}


def fresh(page: Path) -> str:
    """A page with its tables as they are now."""
    text = page.read_text()
    for number, make in enumerate(MADE[page]):
        parts = text.split(BEGIN)
        rest = parts[number + 1]
        parts[number + 1] = f"{make()}{rest[rest.index(END) :]}"
        text = BEGIN.join(parts)
    return text


if __name__ == "__main__":
    for page in MADE:
        page.write_text(fresh(page))
