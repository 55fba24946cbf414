"""A checkpoint's configuration to a model: what each layer stores, and all that is not sure about it.

In: config.json. Out: a model's caches with remarks. Start with `recognise.py`.
"""
