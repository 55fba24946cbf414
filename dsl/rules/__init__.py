"""Rules over foreign values, those of a checkpoint's configuration or an engine's dump.

In: rules of layout files and somebody else's JSON. Out: which kind of cache there is, with which parameters.
Start with `rule.py`.
"""
