"""Prove the emitted text, parsed back, against the two placements, without enumerating bytes.

In: text and two placements. Out: a `Proof`, or ProofFailed. Start with `prove.py`.
"""
