"""The prefill worker: holds requests under leases, offers computed chunks, and writes them if decode asks for that.

Start with `worker.py`.
"""
