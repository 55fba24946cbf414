"""The contract of compiler and runtime: what a plan is, how its tables expand, what a request is. Imports numpy only.

Start with `types.py`. Plans import `kvplan.plan.types`.
"""
