"""The command `kvplan`. Everything that writes files is here.

Start with `main.py`; commands/ has a file for each verb.
"""
