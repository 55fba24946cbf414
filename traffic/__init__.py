"""Simulate a fleet: the times of requests of some traffic with each possible pair of sides.

In: a `FleetFile`, a machine's profile, arrivals. Out: for every candidate the times at which each request came, was
computed, moved and answered, and how busy the engines were. Costs are those of `compiler/cost`, limits and turns those
of `runtime/transfer/limits.py`. Start with `simulate.py`.
"""
