"""Cost: a plan's descriptors, bytes and copies, and the strategy by which a read costs least.

In: a `plan.types.Plan` and a machine's profile. Out: figures, and the plan with stages if they pay off. Start with
`cost.py`.
"""
