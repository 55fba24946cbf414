"""Many plans: the pairs of a deployment, compiled into a folder with an index, and read back by name or git revision.
In: deployment files and layout files. Out: plans by path. Start with `jobs.py`.
"""
