"""Cost: what a plan's descriptors, bytes and copies come to, and by which strategy a read costs least.

In: a `plan.types.Plan` and a machine's profile. Out: figures, and the plan with stages where they pay. Start with
`cost.py`.
"""
