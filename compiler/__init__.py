"""From layouts and two sides to the proved text of a plan.

In: a `dsl` library, a model, two sides' texts. Out: `api.Compiled`. Start with `api.py`; the rooms are the steps.
"""
