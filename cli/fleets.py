"""The engines that a command works on: those registered in etcd, or those in a file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from kvplan.cli.options import leave_out
from kvplan.fleet.errors import FleetError
from kvplan.fleet.etcd import PREFIX, Certificates, EtcdFleet
from kvplan.fleet.file import read_fleet
from kvplan.fleet.records import EngineRecord

FILE = click.Path(dir_okay=False, exists=True)
POSITIVE, SECONDS = click.FloatRange(min=0, min_open=True), 5.0
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class EtcdAccess:
    """The connection to etcd: the prefix of engines' keys, files for TLS, and the seconds to wait for an answer."""

    prefix: str
    authority: str | None
    certificate: str | None
    key: str | None
    seconds: float

    def given(self) -> dict[str, object]:
        """The values that differ from their defaults, by option; None for the others."""
        return {
            "--prefix": None if self.prefix == PREFIX else self.prefix,
            "--ca": self.authority,
            "--cert": self.certificate,
            "--cert-key": self.key,
            "--seconds": None if self.seconds == SECONDS else self.seconds,
        }


def etcd_options(function: F) -> F:
    """Add `--prefix`, `--ca`, `--cert`, `--cert-key` and `--seconds`, passed on as one EtcdAccess `etcd`."""

    @click.option("--prefix", default=PREFIX, show_default=True, help="Where engines are kept in etcd.")
    @click.option("--ca", metavar="FILE", type=FILE, help="The certificate of etcd's signer.")
    @click.option("--cert", metavar="FILE", type=FILE, help="Our certificate, with --cert-key.")
    @click.option("--cert-key", metavar="FILE", type=FILE, help="The key of our certificate.")
    @click.option("--seconds", type=POSITIVE, default=SECONDS, show_default=True, help="Seconds to wait for etcd.")
    @wraps(function)
    def wrapped(*args: Any, **given: Any) -> Any:
        etcd = EtcdAccess(*(given.pop(name) for name in ("prefix", "ca", "cert", "cert_key", "seconds")))
        return function(*args, etcd=etcd, **given)

    return cast(F, wrapped)


def places_of(text: str) -> Sequence[str]:
    """The path of a file if there is one, else the URLs between commas."""
    return [text] if Path(text).is_file() else text.split(",")


def engines_of(places: Sequence[str], etcd: EtcdAccess) -> Mapping[str, EngineRecord]:
    """The engines by name, from the members of one etcd or from a file. Raises FleetError."""
    if len(places) == 1 and Path(places[0]).is_file():
        leave_out("these are of an etcd, and engines are read of a file", etcd.given())
        return read_fleet(Path(places[0])).engines()
    for place in places:
        # A text with a password must not be printed: EtcdFleet refuses it without repeating it.
        if "://" not in place and "@" not in place:
            raise FleetError(f"{place} is neither a file nor a URL of etcd: give http://host:2379 or https://host:2379")
    return _engines_in_etcd(places, etcd)


def _engines_in_etcd(urls: Sequence[str], etcd: EtcdAccess) -> Mapping[str, EngineRecord]:
    """The engines in etcd's first answer. Raises FleetError if it does not answer in time."""
    # Without a handler Python prints the runtime's warning, and the error below would repeat it.
    logging.getLogger("kvplan.runtime").addHandler(logging.NullHandler())
    certificates = Certificates(etcd.authority, etcd.certificate, etcd.key)
    fleet = EtcdFleet(urls, etcd.prefix, certificates=certificates)
    end = time.monotonic() + etcd.seconds
    while fleet.age() == float("inf"):
        if time.monotonic() > end:
            reason = fleet.problem() or "nothing was heard"
            raise FleetError(f"etcd has not answered within {etcd.seconds:g} s: {reason}")
        time.sleep(0.01)
    fleet.close()
    return fleet.engines()
