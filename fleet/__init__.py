"""Fleets of engines: their records, in a given list or in etcd, and the pairs of engines that have a plan.

Start with `records.py`. `__all__` is the public API. The runtime never depends on a fleet.
"""

from kvplan.fleet.etcd import Certificates, EtcdFleet
from kvplan.fleet.file import read_fleet
from kvplan.fleet.pairs import FleetPair, fleet_pairs
from kvplan.fleet.records import EngineRecord, EngineRole, EngineState, Fleet, StaticFleet

__all__ = [
    "Certificates", "EngineRecord", "EngineRole", "EngineState", "EtcdFleet", "Fleet", "FleetPair", "StaticFleet",
    "fleet_pairs", "read_fleet",
]  # fmt: skip
