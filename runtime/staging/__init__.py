"""Bytes that go by way of a buffer: what is in it, the copies between it and the pool, who may use it.

Start with `copies.py`.
"""
