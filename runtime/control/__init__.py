"""Words between workers: cards, handshake, messages, sealed and authenticated.

Start with `messages.py`.
"""
