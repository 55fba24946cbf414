"""A page of `kvplan show` in a real browser, with everything that it asks of the network and says to its console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kvplan.cli.main import main

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@contextmanager
def chromium() -> Iterator[Any]:
    """A headless browser; skips the test where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: kvplan[browser]")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(NAMES)} is installed: apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


class ShownPage:
    """A page that is open, and what it said or asked for that it should not have."""

    def __init__(self, browser: Any, path: Path, scheme: str = "light") -> None:
        self.faults: list[str] = []
        self.tab = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme).new_page()
        self.tab.on("console", lambda message: self.faults.append(message.text))
        self.tab.on("pageerror", lambda error: self.faults.append(str(error)))
        self.tab.on("request", lambda request: self._asked(request.url))
        self.tab.goto(path.as_uri())

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "data:")):
            self.faults.append(f"asked for {url}")

    def run(self, script: str, value: object = None) -> Any:
        return self.tab.evaluate(script, value)


def shown(folder: Path, *words: str) -> Path:
    """The page that `kvplan show` writes."""
    out = folder / "page.html"
    done = CliRunner().invoke(main, ["show", *words, "-o", str(out)])
    assert done.exit_code == 0, done.output
    return out
