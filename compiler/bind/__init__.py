"""Bind: layout files and a side's text become a `BoundSide`, every number resolved, no addresses.

Start with `bind.py`.
"""
