"""Derive a model from a checkpoint's configuration: what each layer stores, and which numbers are in doubt.

In: config.json. Out: a model's caches with remarks. Start with `recognise.py`.
"""
