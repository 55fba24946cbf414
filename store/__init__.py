"""Stored caches: objects of whole blocks, found by hashes of their tokens, saved and loaded by plans.

Start with `engine.py`. `__all__` is the public API.
"""

from kvplan.store.bucket import NixlBucket
from kvplan.store.engine import Loader, Saver
from kvplan.store.files import NixlFiles
from kvplan.store.keys import block_keys
from kvplan.store.store import Store

__all__ = ["Loader", "NixlBucket", "NixlFiles", "Saver", "Store", "block_keys"]
