"""Explain plans and sides to people: values, differences, matrices.
In: plans and sides. Out: plain values and text. Start with `describe.py`.
"""
