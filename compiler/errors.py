"""The compiler's errors: a permanent code, what is wrong, and what would make it work."""

from __future__ import annotations


class CompileError(Exception):
    """The base of all compile errors. `code` is permanent (cli/codes.md), `help` says what to do."""

    def __init__(self, code: str, message: str, help: str = "") -> None:
        super().__init__(f"{code}: {message}" + (f" ({help})" if help else ""))
        self.code, self.message, self.help = code, message, help


class BadInput(CompileError):
    """A side, option or request that makes no sense: unknown keys, impossible values."""


class Refused(CompileError):
    """A pair that kvplan cannot compile, with the reason."""


class ProofFailed(CompileError):
    """A plan that fails its proof. It is never written; this is a fault of the compiler."""
