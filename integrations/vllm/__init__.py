"""The connector for vLLM: `kv_connector=KvplanConnector`, `kv_connector_module_path=kvplan.integrations.vllm`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.integrations.vllm.connector import KvplanConnector

__all__ = ["KvplanConnector"]


def __getattr__(name: str) -> object:
    """The connector, imported when vLLM asks for it: whoever has no vLLM can import the rest."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvplan.integrations.vllm.connector import KvplanConnector

    return KvplanConnector
