"""The command that makes a plan, and its run. Texts from peers are checked, and no shell reads them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from kvplan.plan.errors import PlanMissingError

MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.=,+()-]{0,1023}")
DIGEST = re.compile(r"[A-Za-z0-9]{1,64}")
# The compiler reads a model name with such an ending as a path.
PATHS = (".yaml", ".yml", ".yam")
REFUSED = 3


@dataclass(frozen=True, slots=True)
class CompileResult:
    """The result of a command: digests of plans, or a problem. It is `final` if another run would end the same."""

    digests: tuple[str, ...]
    problem: str = ""
    final: bool = True


@dataclass(frozen=True, slots=True)
class Jit:
    """A compiler of missing plans. Each takes at most `timeout` seconds; `layouts` are directories of layout files.

    One process runs at most `most` commands for one directory, so that peers cannot fill the disk.
    """

    timeout: float
    layouts: tuple[str | Path, ...] = ()
    most: int = 256

    def run(self, words: Sequence[str]) -> CompileResult:
        """Run `kvplan WORDS`. Raises PlanMissingError if it does not end in time or cannot be run."""
        argv = [sys.executable, "-P", "-m", "kvplan.cli", *words, "--format", "json"]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=self.timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise PlanMissingError(f"not done within {self.timeout:.3g} s: {shown(words)}") from error
        except OSError as error:
            raise PlanMissingError(f"cannot be run, {error}: {shown(words)}") from error
        if done.returncode:
            said = _error_text(done.stdout) or done.stderr.decode(errors="replace").strip()[-500:]
            return CompileResult((), f"exit code {done.returncode}, {said}", done.returncode == REFUSED)
        return _digests(done.stdout)


def command(
    model: str, prefill: str, decode: str, options: Iterable[tuple[str, str]], layouts: Iterable[str | Path], out: Path
) -> list[str]:
    """Return the arguments of `kvplan` that make a plan. Raises PlanMissingError for an invalid name or key."""
    if not MODEL.fullmatch(model) or model.endswith(PATHS):
        raise PlanMissingError(f"{ascii(model)[:200]} is no name of a model: no plan can be made for it")
    for key in (prefill, decode):
        if not KEY.fullmatch(key):
            raise PlanMissingError(f"{ascii(key)[:200]} is no key of a side: no plan can be made for it")
    given = [word for name, value in options for word in (f"--{name}", value)]
    own = [word for folder in layouts for word in ("--layouts", str(folder))]
    return ["compile", model, "--prefill", prefill, "--decode", decode, *given, *own, "-o", str(out)]


def check_digests(*digests: str) -> None:
    """Raises PlanMissingError for an invalid digest, so that a peer cannot put its own text into an error message."""
    for digest in digests:
        if not DIGEST.fullmatch(digest):
            raise PlanMissingError(f"{ascii(digest)[:200]} is no digest: no plan has it")


def shown(words: Sequence[str]) -> str:
    """Return the command as a shell reads it."""
    return shlex.join(["kvplan", *words])


def _error_text(stdout: bytes) -> str:
    """Return the error in a command's JSON output, or an empty text."""
    try:
        error = json.loads(stdout)["error"]
        return f"{error['code']}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        return ""


def _digests(stdout: bytes) -> CompileResult:
    try:
        return CompileResult(tuple(str(plan["digest"]) for plan in json.loads(stdout)["plans"]))
    except (ValueError, KeyError, TypeError):
        return CompileResult((), f"the compiler's answer cannot be read: {ascii(stdout)[:200]}", False)
