"""Landings: what of which prefill page lands where in the pages of a decode worker.

In: a plan and a decode worker. Out: pieces with letters, their pages drawn, a table of them. Start with `spans.py`.
"""
