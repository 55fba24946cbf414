"""Pages drawn in text, to scale: what repeats together, bars of it level by level, and the tensors in it in words.

In: spans with the loops around them. Out: lines of text. Start with `pieces.py`.
"""
