"""cosmic-ray's own environment, outside the checkout: made once, and shared by all checkouts."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.engine_environment import complete, do, place_of

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def ready() -> Path:
    """The folder with its commands, which is made if there is none. Raises UnavailableError."""
    folder = place_of("mutants", REQUIREMENTS)
    if not complete(folder).exists():
        print(f"installing cosmic-ray in {folder}", flush=True)
        do(sys.executable, "-m", "venv", "--clear", str(folder))
        do(str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS))
        complete(folder).touch()
    return folder / "bin"
