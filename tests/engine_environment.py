"""An engine's own environment, outside the checkout: made once, by pinned requirements, and shared by all checkouts."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PYTHON = (3, 11)  # the wheels of torch for CPUs that engines want are of this one
INSTALL_S = 3600


class UnavailableError(Exception):
    """The environment for an engine is missing; the text says why."""


@dataclass(frozen=True, slots=True)
class EngineEnvironment:
    """The environment of `engine`, in a folder that `word` begins. `variable` names one that is there already.

    `cost` says what an installation takes, `target` the command that installs it.
    """

    engine: str
    word: str
    requirements: Path
    variable: str
    cost: str
    target: str

    def cached(self) -> Path:
        """The Python of an environment that is there. Raises UnavailableError."""
        named = os.environ.get(self.variable)
        folder = Path(named) if named else self.place()
        python = folder / "bin" / "python"
        if not python.exists() or not (named or complete(folder).exists()):
            raise UnavailableError(f"{self.engine} is not installed in {folder}: `{self.target}` installs it there")
        return python

    def ready(self) -> Path:
        """The Python of the environment, which is made if there is none. Raises UnavailableError."""
        try:
            return self.cached()
        except UnavailableError:
            if os.environ.get(self.variable):
                raise
        return self.install(self.place())

    def place(self) -> Path:
        """The folder for an environment of these requirements."""
        return place_of(self.word, self.requirements)

    def install(self, folder: Path) -> Path:
        """Make the environment. Raises UnavailableError."""
        if (sys.platform, platform.machine()) != ("linux", "x86_64") or sys.version_info[:2] != PYTHON:
            raise UnavailableError(f"{self.engine} for CPUs is installed on Linux, x86-64, with Python 3.11 only")
        print(f"installing {self.engine} in {folder}: {self.cost}", flush=True)
        python = folder / "bin" / "python"
        do(sys.executable, "-m", "venv", "--clear", str(folder))
        pip = (str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        do(*pip, "--no-deps", "--no-compile", "-r", str(self.requirements))
        complete(folder).touch()
        return python


def place_of(word: str, requirements: Path) -> Path:
    """The folder of the cache for what a file of requirements asks for; its name begins with `word`."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    return Path(cache) / "kvplan" / f"{word}-{digest}"


def complete(folder: Path) -> Path:
    """The file that says that an installation came to its end."""
    return folder / ".complete"


def do(*command: str) -> str:
    """Return the output of a command. Raises UnavailableError with the end of its stderr."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=INSTALL_S).stdout
    except subprocess.CalledProcessError as error:
        raise UnavailableError(f"{' '.join(command[:4])} … failed: {error.stderr[-500:]}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{' '.join(command[:4])} … took longer than {INSTALL_S} s") from error
