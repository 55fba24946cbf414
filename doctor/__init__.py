"""The checks of `kvplan doctor`: whether two engines fit together, what this machine has, and what to run.

Input is two sides of a model, output plain values and command lines. Start with `examine.py`.
"""
