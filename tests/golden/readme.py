"""The layout file and the plan that README shows, as they are now. Run as a program it writes them into README."""

from __future__ import annotations

from tests.paths import ROOT

LAYOUT = ROOT / "layouts/models/llama-3.yaml"
PLAN = ROOT / "examples/plans/llama_3_1_8b/p_tp4__d_tp2.py"
LEFT_OUT = "\n\n# […]\n\n"


def fresh(readme: str) -> str:
    """`readme` with its first yaml block and its first python block written again."""
    for language, shown in (("yaml", LAYOUT.read_text().rstrip()), ("python", excerpt(PLAN.read_text()))):
        before, fence, rest = readme.partition(f"```{language}\n")
        readme = before + fence + shown + rest[rest.index("\n```") :]
    return readme


def excerpt(plan: str) -> str:
    """A page of a plan: what its header says, who reads what, and by which tables."""
    header = plan[: plan.index("# fmt: off")].rstrip()
    tables = plan[plan.index("# Who reads what") : plan.index("# Where each side")].rstrip()
    return f"{header}{LEFT_OUT}{tables}{LEFT_OUT.rstrip()}"


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(fresh(page.read_text()))
