"""One transfer: moves what a request demands, in slices, within limits.

Start with `executor.py`.
"""
