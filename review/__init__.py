"""What changes between two sets of plans: compared by meaning, judged, and what it means to engines that run.

In: plans, deployments, git revisions. Out: a `Review` as text, Markdown, JSON, annotations. Start with `rules.py`.
"""
