"""Layout files: from YAML text to typed models of kinds, engines and models, every error in its place.

In: files under layouts/ and a user's own. Out: `library.Library`, whose models, kinds, engines and machines are frozen.
Start with `model.py` (the values), then `library.py`.
"""
