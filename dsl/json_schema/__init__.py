"""JSON Schema (draft 2020-12) of layout files, for editors that complete and check.

In: the forms of `schema`, a library. Out: plain JSON. Start with `files.py`.
"""
