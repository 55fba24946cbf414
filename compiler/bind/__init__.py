"""Bind layout files and a side's text into a `BoundSide`: every number resolved, no addresses.

Start with `bind.py`.
"""
