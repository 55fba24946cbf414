"""Audit: judge another program's copies by naive indexing.
In: a list of copies. Out: a `Verdict`. Start with `audit.py`.
"""
