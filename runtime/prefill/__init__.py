"""The prefill worker: holds requests under leases, offers what is computed, writes where it is asked to.

Start with `worker.py`.
"""
