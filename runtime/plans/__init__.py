"""Where a worker's plans come from: given, a directory with an index, a compiler run on demand.

Start with `catalog.py`.
"""
