"""The table of README with pairs of real engines: what came of the cases that docs/vllm.md and docs/sglang.md list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.paths import DOCS
from tests.vllm.table import markdown

BEGIN, END = "<!-- table: engines -->\n", "<!-- end of table -->"
NOT_RUN = "not run"
COLUMNS = (
    "block or page sizes differ",
    "staged",
    "push",
    "tp differs",
    "sliding windows",
    "Mamba-2 hybrid",
    "weights differ",
)
# For each pair the cases that a column stands for: names in the pages' tables, none where there is no such case.
PAIRS: Mapping[str, Sequence[Sequence[str]]] = {
    "vLLM → vLLM": (
        ("blocks 32 → 64", "blocks 64 → 32"),
        ("by way of decode's stage, 32 → 64", "by way of prefill's stage, 64 → 32"),
        ("push, 32 → 64",),
        ("tp 1 → 2, 32 → 64", "tp 2 → 1, 32 → 64"),
        ("sliding and full, 32 → 64",),
        ("Mamba-2 and attention",),
        ("weights that differ",),
    ),
    "SGLang → SGLang": (
        ("pages 16 → 64", "pages 64 → 16", "pages 1 → 64", "pages 64 → 1", "pages 1 → 16", "pages 16 → 1"),
        ("by way of decode's stage, tp 1 → 2, 16 → 64", "by way of prefill's stage, push, tp 2 → 1, 16 → 64"),
        ("push, 16 → 64",),
        ("tp 1 → 2, 16 → 64", "tp 2 → 1, 16 → 64"),
        ("sliding and full, 16 → 64",),
        ("Mamba-2 and attention, 16 → 64", "Mamba-2 and attention, 1 → 64"),
        ("weights that differ, pages of 16",),
    ),
    **{
        way: (
            tuple(f"{name}, direct" for name in names),
            tuple(f"{name}, staged" for name in names),
            (f"{names[0]}, push",),
            (f"{names[0]}, tp 2 on SGLang's side",),
            (f"{names[0]}, sliding and full",),
            (hybrid,),
            (f"{names[0]}, weights that differ",),
        )
        for way, names, hybrid in (
            ("vLLM → SGLang", ("vLLM 32 → SGLang 64", "vLLM 32 → SGLang 16", "vLLM 64 → SGLang 1"),
             "vLLM 64 → SGLang 64, Mamba-2 and attention"),
            ("SGLang → vLLM", ("SGLang 64 → vLLM 32", "SGLang 16 → vLLM 32", "SGLang 1 → vLLM 64"),
             "SGLang 64 → vLLM 64, Mamba-2 and attention"),
        )
    },
}  # fmt: skip


def with_engines(readme: str) -> str:
    """`readme` with the table as the pages have it now."""
    before, begin, rest = readme.partition(BEGIN)
    assert begin, "README has no table of engines"
    return f"{before}{begin}{table()}{rest[rest.index(END) :]}"


def table() -> str:
    cells = {name: word for page in ("vllm.md", "sglang.md") for name, word in read((DOCS / page).read_text()).items()}
    rows = ([f"**{pair}**", *(cell(cells, names) for names in columns)] for pair, columns in PAIRS.items())
    return markdown([["prefill → decode", *COLUMNS], *rows])


def read(page: str) -> dict[str, str]:
    """What came of kvplan's cases, the first column behind their names."""
    rows = [[one.strip() for one in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| ")]
    return {row[0]: row[1] for row in rows if len(row) > 1}


def cell(cells: Mapping[str, str], names: Sequence[str]) -> str:
    """One word for cases that came to the same; all of their words otherwise."""
    words = dict.fromkeys(cells[name] for name in names)
    return ", ".join(words) or NOT_RUN
