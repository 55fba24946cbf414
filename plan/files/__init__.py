"""Plans in files: plan texts are parsed into values and checked; a folder of plans has an index that pins them.

Start with `loader.py`.
"""
