"""The pictures of docs/pictures, as `kvplan show --svg` draws them now. Run as a program it writes them."""

from __future__ import annotations

from tests.paths import ROOT

from kvplan.compiler.api import compile_pair
from kvplan.compiler.explain.picture.figure import figure
from kvplan.dsl.library import load

PICTURES = ROOT / "docs" / "pictures"
# File -> model, prefill, decode.
SHOWN = {"heads-and-tokens.svg": ("llama-3.1-8b", "tp=4", "tp=2,order=nhd")}


def figures() -> dict[str, str]:
    """File name -> SVG."""
    library = load()
    return {name: figure(compile_pair(library, *pair).plan) for name, pair in SHOWN.items()}


if __name__ == "__main__":
    for name, text in figures().items():
        (PICTURES / name).write_text(text)
