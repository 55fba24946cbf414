"""Placement: from a coordinate to (worker, plane, byte), and page trees for the way back.

In: a `BoundSide`. Out: units of pages, intervals that workers hold. Start with `place.py`.
"""
