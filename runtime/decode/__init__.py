"""The decode worker: connects to prefill engines, has requests moved here, and ends each with one outcome.

Start with `worker.py`.
"""
