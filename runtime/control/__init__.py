"""Messages between workers: cards, handshake and all others, sealed and authenticated.

Start with `messages.py`.
"""
