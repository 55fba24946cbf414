"""KvplanConnector by the name NixlConnector, for programs that know connectors by name, such as Dynamo's vLLM worker.

    {"kv_connector": "NixlConnector", "kv_connector_module_path": "kvplan.integrations.vllm.as_nixl", …}

vLLM prefers a connector from `kv_connector_module_path` to its own of that name. So only a configuration that names
this module replaces vLLM's NixlConnector; the engine's log names the class, KvplanConnector.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvplan.integrations.vllm.connector import KvplanConnector as NixlConnector

__all__ = ["NixlConnector"]


def __getattr__(name: str) -> object:
    """Return the connector, imported when vLLM asks for it."""
    if name != "NixlConnector":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvplan.integrations.vllm.connector import KvplanConnector

    return KvplanConnector
