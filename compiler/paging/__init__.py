"""Paging, which finds page sizes, groups and blocks together: a page's bytes need the placement, which needs the kernel
block, which needs pages made equal.

In: a side's caches and an engine's rules. Out: blocks, kernel blocks, strides, groups. Start with `paging.py`.
"""
