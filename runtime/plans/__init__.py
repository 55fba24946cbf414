"""Sources of a worker's plans: given plans, a directory with an index, a compiler run on demand.

Start with `catalog.py`.
"""
