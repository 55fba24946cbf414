"""Check for libraries that few commands need, and that come with extras of kvplan."""

from __future__ import annotations

from importlib.util import find_spec

from kvplan.compiler.errors import BadInput


def check_extra(module: str, extra: str) -> None:
    """Raise BadInput (S033) if the module of an extra is not installed."""
    if find_spec(module) is None:
        raise BadInput("S033", f"{module} is not installed", f"pip install 'kvplan[{extra}]'")
