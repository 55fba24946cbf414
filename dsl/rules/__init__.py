"""Rules over foreign values, those in a checkpoint's configuration or an engine's dump.

In: rules of layout files, foreign JSON. Out: the kinds of caches, with parameters.
Start with `rule.py`.
"""
