"""The layout, the plan and the times that README shows, as they are now. Run as a program it writes them there."""

from __future__ import annotations

import re

from tests.golden.engines import with_engines
from tests.paths import DOCS, ROOT

LAYOUT = ROOT / "layouts/models/llama-3.yaml"
PLAN = ROOT / "examples/plans/llama_3_1_8b/p_tp4__d_tp2.py"
LEFT_OUT = "\n\n# […]\n\n"


def fresh(readme: str) -> str:
    """`readme` with its first yaml block, its first python block, its pairs of engines and its times written again."""
    for language, shown in (("yaml", shortened(LAYOUT.read_text())), ("python", excerpt(PLAN.read_text()))):
        before, fence, rest = readme.partition(f"```{language}\n")
        readme = before + fence + shown + rest[rest.index("\n```") :]
    return timed(with_engines(readme), (DOCS / "vllm.md").read_text())


def shortened(layout: str) -> str:
    """A layout file with the first of its variants."""
    return layout[: layout.index("  llama-3.3-70b:")] + "  # […]"


def excerpt(plan: str) -> str:
    """The first page of a plan: what its header says, and who reads what."""
    header = plan[: plan.index("# fmt: off")].rstrip()
    reads = plan[plan.index("# What each decode worker reads") : plan.index("# What a read copies")].rstrip()
    return f"{header}{LEFT_OUT}{reads}{LEFT_OUT.rstrip()}"


def timed(readme: str, vllm: str) -> str:
    """`readme` with the times to the first token, idle, that stand in docs/vllm.md."""
    found = re.search(r"^\| time to the first token, idle \| ([\d.]+) ms \| ([\d.]+) ms \|$", vllm, re.MULTILINE)
    assert found is not None
    words = "after {} ms, with NixlConnector after {} ms"
    return re.sub(words.format(r"[\d.]+", r"[\d.]+"), words.format(*found.groups()), readme)


if __name__ == "__main__":
    page = ROOT / "README.md"
    page.write_text(fresh(page.read_text()))
