"""A fleet that is simulated: what requests of some traffic would take with each pair of sides that there could be.

In: a `FleetFile`, a machine's profile, arrivals. Out: for every candidate when each request came, was computed, moved
and answered, and what that kept busy. Costs are those of `compiler/cost`, limits and who is next those of
`runtime/transfer/limits.py`. Start with `simulate.py`.
"""
