"""A side's text, `tp=4,order=nhd`, and the values of an engine's options.

Start with `text.py`.
"""
