"""Signed plans at a URL: pushed once, pulled by every engine.

Start with `exchange.py`. `__all__` is the public API. The runtime takes a catalog from here like any other.
"""

from kvplan.registry.catalog import RemoteCatalog
from kvplan.registry.exchange import Exchanged, pull, push
from kvplan.registry.signing import SigningKey, TrustedKeys

__all__ = ["Exchanged", "RemoteCatalog", "SigningKey", "TrustedKeys", "pull", "push"]
