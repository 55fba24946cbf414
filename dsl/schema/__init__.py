"""The form of layout files: each key once, as a field of a frozen dataclass. JSON Schemas and readers are made of it.

In: a tree of `text.yaml_reader`. Out: values of these classes. Start with `forms.py`.
"""
