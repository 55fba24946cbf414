"""Drawings in text: pages to scale, and what lands where.

Start with `bars.py`.
"""
