"""One transfer: what a request demands, in slices, within limits, to an outcome.

Start with `executor.py`.
"""
