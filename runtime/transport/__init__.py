"""Transports that move bytes: NIXL, and one with the same interface within a process.

Start with `base.py`.
"""
