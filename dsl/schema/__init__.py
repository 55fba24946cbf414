"""The form of layout files, stated once: keys, shapes, meanings; JSON Schemas and the readers are made of it.

In: nothing. Out: `shapes`' forms. Start with `shapes.py`.
"""
