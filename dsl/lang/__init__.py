"""The two small languages: expressions over named values, and storage expressions.

In: text. Out: the nodes of `nodes.py`, and values of expressions from `evaluate.py`. Start with `nodes.py`.
"""
