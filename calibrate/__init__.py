"""`kvplan calibrate`: measure transfers between two processes over NIXL, and copies within one.
In: nothing but this machine. Out: a machine file. Start with `measure.py`.
"""
