"""The second opinion: naive indexing of the same sides. No step of the compiler may import this room.

In: bound sides, and copies, a plan's or another program's. Out: verdicts. Start with `oracle.py`.
It imports no step that it judges, so that a step cannot hide its own fault: this room itself finds which groups meet,
what a ring still holds and which caches a side lacks. From the steps it takes only what makes sentences: nouns with
their numbers (`words`), the nearest name (`side.text`), and the refusal of pairs for an audit (`compat`). The contract
`judges-nothing-it-uses` in pyproject.toml enforces that.
"""
