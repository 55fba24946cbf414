"""Whether two engines fit together, what this machine has for them, and what to run.

In: two sides of a model. Out: plain values and command lines. Start with `examine.py`.
"""
