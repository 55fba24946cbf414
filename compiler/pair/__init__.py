"""Pair: from two placements to the reads of every decode worker.

In: two placed sides. Out: the tables of a `plan.types.Plan`. Start with `reads.py`.
"""
