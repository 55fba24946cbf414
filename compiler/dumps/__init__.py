"""Dumps: the cache memory of a running engine, compared with a layout or made into one.
In: JSON that an engine printed. Out: differences, or a model. Start with `dump.py`.
"""
