"""Readers of layout files: kinds, engines, models, deployments.

In: a tree of `text.yaml_reader`. Out: the values of `dsl.model`. Start with `fields.py`, then `kinds.py`.
"""
