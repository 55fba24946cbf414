"""The connector for vLLM, `kv_connector=KvplanConnector`: vLLM's processes call `register`, a plugin of theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.integrations.vllm.connector import KvplanConnector

__all__ = ["KvplanConnector", "register"]


def register() -> None:
    """Tell vLLM's factory of connectors where this one is. vLLM may call it several times in one process."""
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    if "KvplanConnector" not in KVConnectorFactory._registry:
        KVConnectorFactory.register_connector("KvplanConnector", __name__, "KvplanConnector")


def __getattr__(name: str) -> object:
    """The connector, imported when vLLM asks for it: whoever has no vLLM can import the rest."""
    if name != "KvplanConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvplan.integrations.vllm.connector import KvplanConnector

    return KvplanConnector
