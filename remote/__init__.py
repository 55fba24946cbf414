"""Folders at URLs, for registries of plans and stores of caches. Start with `folder.py`."""
