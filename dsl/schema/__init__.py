"""The forms of layout files: each key is a field of a frozen dataclass. Readers and JSON Schemas are derived from them.

In: a tree of `text.yaml_reader`. Out: values of these classes. Start with `forms.py`.
"""
