"""One HTML file of style, scripts and data, which loads nothing else."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

# In this order: a script uses only scripts before it.
SCRIPTS = ("dom", "cells", "spans", "change", "map", "pages", "reads", "tables", "matrix", "main")


def page(title: str, data: Mapping[str, Any]) -> str:
    """The page that shows `data`."""
    said = json.dumps(data, separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    script = "\n".join(_file(f"{name}.js") for name in SCRIPTS)
    parts = {"title": html.escape(title), "style": _file("style.css"), "data": said, "script": script}
    return re.sub(r"\{(title|style|data|script)\}", lambda place: parts[place[1]], _file("page.html"))


def _file(name: str) -> str:
    return files("kvplan.cli.page").joinpath(name).read_text(encoding="utf-8")
