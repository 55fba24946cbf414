"""The protocol between workers as plain state, without sockets, threads or clocks.

Start with `decode.py` or `prefill.py`. The model is sans-I/O, as in quinn-proto and h11: a core takes inputs and
returns outputs, and the worker that owns it carries these out.
"""
