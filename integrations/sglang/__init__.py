"""The connector for SGLang: SGLang calls `register` in each of its processes, as a plugin."""

from __future__ import annotations


def register() -> None:
    """Make `--disaggregation-transfer-backend kvplan` known to SGLang. Exits if this release lacks what that needs."""
    from kvplan.integrations.sglang.plugin import install

    install()
