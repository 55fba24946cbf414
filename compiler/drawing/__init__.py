"""Draw pages as text, to scale: repetitions found, a bar for each level, and the tensors in words.
In: spans with the loops around them. Out: lines of text. Start with `pieces.py`.
"""
