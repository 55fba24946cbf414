"""Folders at URLs, which registries of plans and stores of caches lie in. Start with `folder.py`."""
