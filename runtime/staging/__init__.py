"""Bytes that go by way of a stage: images of pages in a buffer, the copies between it and the pool, who may use it.

Start with `staged.py`.
"""
