"""The stage: buffers with images of pages, the copies between them and the pool, and lending them to peers.

Start with `staged.py`.
"""
