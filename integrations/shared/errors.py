"""Errors that stop an engine at start-up: a permanent code each (cli/codes.md), what is wrong, and what to do."""

from __future__ import annotations

from kvplan.compiler.errors import CompileError


class ConnectorError(CompileError):
    """The connector cannot run with this configuration."""
