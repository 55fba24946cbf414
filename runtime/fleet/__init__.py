"""Which engines there are: what each says of itself, in a list that is given or in etcd; and which pairs have a plan.

Start with `records.py`. Optional: nothing else of the runtime asks who there is.
"""
