"""Tables of the site on a narrow screen: the page is as wide as the screen, and a wide table scrolls by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.page.browser import chromium
from tests.paths import ROOT

pytestmark = pytest.mark.xdist_group("browser")
SCROLLS = """() => [...document.querySelectorAll(".md-typeset table")].some((table) => {
  const around = [];
  for (let node = table; node !== document.body; node = node.parentElement) around.push(node);
  const own = around.filter((node) => ["auto", "scroll"].includes(getComputedStyle(node).overflowX));
  return own.some((node) => node.scrollWidth > node.clientWidth);
})"""


@pytest.mark.parametrize("scripts", [True, False])
def test_a_wide_table_scrolls_by_itself(scripts: bool, tmp_path: Path) -> None:
    with chromium() as browser:
        _build(tmp_path)
        context: Any = browser.new_context(viewport={"width": 390, "height": 900}, java_script_enabled=scripts)
        tab = context.new_page()
        tab.goto((tmp_path / "compatibility" / "index.html").as_uri())
        assert tab.evaluate(SCROLLS)
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def _build(folder: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "-q", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""})
