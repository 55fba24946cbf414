"""The decode worker: meets prefill engines, has requests moved, ends each in one outcome.

Start with `worker.py`.
"""
