"""The connectors for vLLM, KvplanConnector and KvplanECConnector. vLLM's processes call `register`, as a plugin."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.integrations.vllm.connector import KvplanConnector
    from kvplan.integrations.vllm.encoder.connector import KvplanECConnector

__all__ = ["KvplanConnector", "KvplanECConnector", "register"]


def register() -> None:
    """Register these connectors in vLLM's factories. vLLM may call it several times in one process."""
    from vllm.distributed.ec_transfer.ec_connector.factory import ECConnectorFactory
    from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

    for name, factory in (("KvplanConnector", KVConnectorFactory), ("KvplanECConnector", ECConnectorFactory)):
        if name not in factory._registry:
            factory.register_connector(name, __name__, name)


def __getattr__(name: str) -> object:
    """Return a connector, imported when vLLM asks for it, so that the rest can be imported without vLLM."""
    if name == "KvplanConnector":
        from kvplan.integrations.vllm.connector import KvplanConnector

        return KvplanConnector
    if name == "KvplanECConnector":
        from kvplan.integrations.vllm.encoder.connector import KvplanECConnector

        return KvplanECConnector
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
