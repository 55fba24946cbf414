"""Checksums of cache memory that do not depend on its layout.

Start with `checksum.py`.
"""
