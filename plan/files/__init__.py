"""Plans in files: the text of a plan is parsed into values and checked; a folder of plans has an index that pins them.

Start with `loader.py`.
"""
