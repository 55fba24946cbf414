"""Emit a plan as the text of a module that people review.
In: a `plan.types.Plan`. Out: text. Start with `emit.py`.
"""
