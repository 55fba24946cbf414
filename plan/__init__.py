"""The contract of compiler and runtime: the types of plans, the expansion of tables, requests. Imports numpy only.

Start with `types.py`. Plans import `kvplan.plan.types`.
"""
