"""What is left out and why, written by hand in gallery_left_out.md: `## kind NAME`, `## model FILE`, `## all`."""

from __future__ import annotations

from pathlib import Path

SOURCE = Path(__file__).with_name("left_out.md")
ALL = "all"


def left_out(text: str) -> dict[str, list[str]]:
    """Heading -> its lines."""
    sections = [section.partition("\n") for section in f"\n{text}".split("\n## ")[1:]]
    return {heading.strip(): body.strip().splitlines() for heading, _, body in sections}
