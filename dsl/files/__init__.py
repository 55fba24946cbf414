"""Readers of layout files, one for each type.

In: a tree of `text.yaml_reader`. Out: the forms of `schema`, checked and filled. Start with `kinds.py`.
"""
