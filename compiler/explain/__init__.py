"""What plans and sides say to people: values, differences, matrices.

In: plans and sides. Out: plain values and text. Start with `describe.py`.
"""
