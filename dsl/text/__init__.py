"""Text with places: where something was written, what is wrong there, YAML as a tree that keeps its spans.

In: bytes of a file. Out: `yaml_reader`'s tree, `diagnostics.Diagnostic`s. Start with `source.py`.
"""
