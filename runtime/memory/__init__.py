"""Cache memory as plain numbers: arrays, planes, registration against a plan's side.

Start with `register.py`.
"""
