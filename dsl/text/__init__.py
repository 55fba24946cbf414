"""Text with places: spans, diagnostics, and YAML as a tree that keeps its spans.

In: bytes of a file. Out: `yaml_reader`'s tree, `diagnostics.Diagnostic`s. Start with `source.py`.
"""
