"""Compare two sets of plans by meaning, judge the changes, and say what they mean to running engines.

In: plans, deployments, git revisions. Out: a `Review` as text, Markdown, JSON, annotations. Start with `rules.py`.
"""
