"""Moving bytes: NIXL, and the same face within one process.

Start with `base.py`.
"""
