"""Layout files: YAML text becomes typed kinds, engines and models, and every error has its place.

In: files under layouts/ and a user's own. Out: `library.Library`, whose models, kinds, engines and machines are frozen.
Start with `model.py` (the values), then `library.py`.
"""
