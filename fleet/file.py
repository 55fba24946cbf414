"""A static fleet in a YAML or JSON file: `engines`, a list of records as `kvplan fleet --format json` prints it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from kvplan.fleet.errors import FleetError
from kvplan.fleet.records import EngineRecord, StaticFleet, readable

FIELDS = frozenset(EngineRecord.__struct_fields__)
# The most bytes of a file: enough for a thousand engines of a thousand workers each.
LARGEST = 64 << 20


def read_fleet(path: Path) -> StaticFleet:
    """Return the engines of a file; `run` defaults to the name. Raises FleetError that begins with the path."""
    try:
        if path.stat().st_size > LARGEST:
            raise FleetError(f"{path} has more than {LARGEST} bytes: it is no list of engines")
        plain = msgspec.yaml.decode(path.read_bytes())
        engines = plain.get("engines") if isinstance(plain, dict) else None
        if not isinstance(engines, list):
            raise FleetError(f"{path} has no list of engines: write `engines:` with a record of each")
        return StaticFleet([_record(each, f"{path}: engine {number}") for number, each in enumerate(engines, 1)])
    except OSError as error:
        raise FleetError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, ValueError, KeyError, RecursionError) as error:
        raise FleetError(f"{path} is no list of engines: {error}") from error


def _record(plain: Any, where: str) -> EngineRecord:
    if not isinstance(plain, dict):
        raise FleetError(f"{where} is a {type(plain).__name__}: write its fields")
    if unknown := sorted(map(str, set(plain) - FIELDS)):
        raise FleetError(f"{where} has {', '.join(unknown)}: its fields are {', '.join(sorted(FIELDS))}")
    try:
        record = msgspec.convert({"run": plain.get("name"), **plain}, EngineRecord)
    except msgspec.ValidationError as error:
        help = "write it as `kvplan fleet --format json` prints it (docs/review.md has an example)"
        raise FleetError(f"{where} is no record: {error}: {help}") from error
    # JSON, which etcd uses, has no such numbers, and neither of two runs would be the later one.
    if not math.isfinite(record.started):
        raise FleetError(f"{where} has started {record.started}: write seconds since 1970")
    return readable(record, where)
