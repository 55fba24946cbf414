"""Landings: the parts of prefill pages and their places in the pages of a decode worker.
In: a plan and a decode worker. Out: pieces with letters, their pages drawn, a table of them. Start with `spans.py`.
"""
