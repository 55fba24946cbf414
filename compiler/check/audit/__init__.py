"""Audit: somebody else's copies judged by naive indexing.

In: a list of copies. Out: a `Verdict`. Start with `audit.py`.
"""
