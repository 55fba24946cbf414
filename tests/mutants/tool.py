"""cosmic-ray's own environment, outside the checkout: made once, and shared by all checkouts."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from tests.vllm.environment import complete, do, place

REQUIREMENTS = Path(__file__).with_name("requirements.txt")


def ready() -> Path:
    """The folder with its commands, which is made if there is none. Raises UnavailableError."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    folder = place().with_name(f"mutants-{digest}")
    if not complete(folder).exists():
        print(f"installing cosmic-ray in {folder}", flush=True)
        do(sys.executable, "-m", "venv", "--clear", str(folder))
        do(str(folder / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check", "-r", str(REQUIREMENTS))
        complete(folder).touch()
    return folder / "bin"
