"""Paging: page sizes, groups and blocks together. A page's bytes depend on the placement, the placement on the kernel
block, the kernel block on pages made equal.

In: a side's caches and an engine's rules. Out: blocks, kernel blocks, strides, groups. Start with `paging.py`.
"""
