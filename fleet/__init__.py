"""Which engines there are: what each says of itself, in a list that is given or in etcd; and which pairs have a plan.

Start with `records.py`. `__all__` is the public API. Optional: the runtime never asks which engines there are.
"""

from kvplan.fleet.etcd import Certificates, EtcdFleet
from kvplan.fleet.file import read_fleet
from kvplan.fleet.pairs import FleetPair, fleet_pairs
from kvplan.fleet.records import EngineRecord, EngineRole, EngineState, Fleet, StaticFleet

__all__ = [
    "Certificates", "EngineRecord", "EngineRole", "EngineState", "EtcdFleet", "Fleet", "FleetPair", "StaticFleet",
    "fleet_pairs", "read_fleet",
]  # fmt: skip
