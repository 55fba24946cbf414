"""The two small languages: expressions over named values, and storage expressions.

In: text. Out: the nodes of `nodes.py`, and what `evaluate.py` makes of an expression. Start with `nodes.py`.
"""
