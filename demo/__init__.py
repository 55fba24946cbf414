"""`kvplan demo`: real processes, one request, every byte compared by rules of the demo's own.

Start with `run.py`.
"""
