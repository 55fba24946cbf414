"""Stored caches: objects of whole blocks, found by what their tokens are, saved and loaded by plans.

Start with `engine.py`.
"""
