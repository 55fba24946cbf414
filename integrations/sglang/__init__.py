"""The connector for SGLang: SGLang calls `register` in each of its processes, as a plugin."""

from __future__ import annotations


def register() -> None:
    """Register `--disaggregation-transfer-backend kvplan` with SGLang. Exits if this release lacks a hook for that."""
    from kvplan.integrations.sglang.plugin import install

    install()
