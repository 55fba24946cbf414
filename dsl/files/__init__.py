"""Readers of layout files: kinds, engines, models, deployments.

In: a tree of `text.yaml_reader`. Out: the forms of `schema`, checked and filled. Start with `kinds.py`.
"""
