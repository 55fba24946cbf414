"""Pictures: the data of a page of `kvplan show`, as plain values, and one figure of it as SVG.
In: plans. Out: JSON in which a page is a map of cells, and text. Start with `page_map.py`.
"""
