"""A Python environment with a release of vLLM: its code and the packages of requirements.txt, in folders of the cache.

These packages come before those of `make vllm`, which include torch. They take 500 MB and a minute to install.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.engine_environment import complete, do, place_of
from tests.paths import EXAMPLES, TESTS
from tests.vllm import environment, releases

REQUIREMENTS = TESTS / "conformance" / "requirements.txt"
DUMPS = EXAMPLES / "dumps"
# One thread for each model that is built, and no compiler.
SETTINGS = {"TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}


def ready(release: str) -> tuple[Path, dict[str, str]]:
    """The Python of the environment, and the surroundings in which it finds a release. Raises UnavailableError."""
    python = environment.ready()
    code = Path(releases.cached(release, install=True))
    return python, {**os.environ, **SETTINGS, "PYTHONPATH": f"{code}:{_packages()}"}


def _packages() -> Path:
    folder = place_of("conformance", REQUIREMENTS)
    if not complete(folder).exists():
        print(f"installing {REQUIREMENTS.name} in {folder}", flush=True)
        pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target", str(folder))
        do(*pip, "-r", str(REQUIREMENTS))
        complete(folder).touch()
    return folder
