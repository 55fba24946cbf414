"""SGLang's own environment, outside the checkout: made once, by pinned requirements, and shared by all checkouts.

1.6 GB, and a minute. KVPLAN_SGLANG_ENV names one that is there already.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from pathlib import Path

from tests.paths import ROOT, TESTS
from tests.vllm.environment import PYTHON, UnavailableError, complete, do

REQUIREMENTS = TESTS / "sglang" / "requirements.txt"
# What pip writes of an installed kvplan: SGLang finds plugins by it.
METADATA = "Metadata-Version: 2.1\nName: kvplan\nVersion: 0\n"
ENTRY = "[sglang.srt.plugins]\nkvplan = kvplan.integrations.sglang:register\n"


def cached() -> Path:
    """The Python of an environment that is there. Raises UnavailableError."""
    named = os.environ.get("KVPLAN_SGLANG_ENV")
    folder = Path(named) if named else place()
    python = folder / "bin" / "python"
    if not python.exists() or not (named or complete(folder).exists()):
        raise UnavailableError(f"SGLang is not installed in {folder}: `make sglang` installs it there")
    return python


def ready() -> Path:
    """The Python of the environment, which is made if there is none. Raises UnavailableError."""
    try:
        return cached()
    except UnavailableError:
        if os.environ.get("KVPLAN_SGLANG_ENV"):
            raise
    return install(place())


def place() -> Path:
    """Where an environment of these requirements belongs."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return Path(cache) / "kvplan" / f"sglang-{digest}"


def install(folder: Path) -> Path:
    """Make the environment. Raises UnavailableError."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or sys.version_info[:2] != PYTHON:
        raise UnavailableError("SGLang for CPUs is installed on Linux, x86-64, with Python 3.11 only")
    print(f"installing SGLang in {folder}: 1.6 GB, a minute", flush=True)
    python = folder / "bin" / "python"
    do(sys.executable, "-m", "venv", "--clear", str(folder))
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    do(*pip, "--no-deps", "--no-compile", "-r", str(REQUIREMENTS))
    complete(folder).touch()
    return python


def paths(folder: Path) -> str:
    """PYTHONPATH by which engines find this checkout, and SGLang its plugin, whose metadata is written to `folder`."""
    about = folder / "metadata" / "kvplan-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(METADATA)
    (about / "entry_points.txt").write_text(ENTRY)
    return os.pathsep.join(map(str, (ROOT / "src", ROOT, about.parent)))
