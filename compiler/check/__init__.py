"""The second opinion: naive indexing of the same sides. No step of the compiler may import this room.

In: bound sides, and copies, a plan's or somebody else's. Out: verdicts. Start with `oracle.py`.
"""
