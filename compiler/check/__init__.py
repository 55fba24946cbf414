"""The second opinion: naive indexing of the same sides. No step of the compiler may import this room.

In: bound sides, and copies, a plan's or somebody else's. Out: verdicts. Start with `oracle.py`.

It imports no step that it judges, so that a fault of one cannot hide: which groups meet, what a ring still holds and
which caches a side lacks is worked out here. What it takes from the steps is plumbing, and only makes sentences: nouns
with their numbers (`words`), the nearest name (`side.text`), and the refusal of pairs that an audit is asked of
(`compat`). The contract `judges-nothing-it-uses` in pyproject.toml holds it to that.
"""
