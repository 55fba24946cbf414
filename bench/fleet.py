"""A fleet in a real etcd: the time until all engines are seen, at first, after a restart and after an outage."""

from __future__ import annotations

import logging
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kvplan.bench.etcd_server import ETCD, EtcdServer
from kvplan.bench.report import Row, skipped
from kvplan.fleet.etcd import EtcdFleet
from kvplan.fleet.records import EngineRecord, EngineRole, EngineState

AREA = "a fleet in etcd"
SIZES, WATCHERS, LEASE = (1, 10, 100, 1000), 10, 15
PATIENCE = 300.0
# Sides of different meshes, and two releases of a model's layout.
MESHES, RELEASES = ("tp=1", "tp=2", "tp=4", "tp=8,order=nhd"), ("0" * 32, "1" * 32)


def measure(pairs: int) -> list[Row]:
    """Measure engines of this process that announce themselves, each with its own connection, and some that watch."""
    if ETCD is None:
        return [skipped(AREA, "no etcd on this machine")]
    # Warnings of engines about a frozen etcd are expected.
    logging.getLogger("kvplan.runtime").setLevel(logging.ERROR)
    return [row for size in SIZES for row in _of_size(size)]


def _of_size(size: int) -> list[Row]:
    with _running() as etcd:
        before = _resident()
        members = [EtcdFleet([etcd.url], lease=LEASE) for _ in range(size)]
        watchers = [EtcdFleet([etcd.url], lease=LEASE) for _ in range(min(size, WATCHERS))]

        def announced() -> None:
            for number, member in enumerate(members):
                member.announce(_record(number))

        found = {
            "first": _seconds(announced, watchers, size),
            "after a restart": _seconds(lambda: _again(etcd), watchers, size, late=EtcdFleet([etcd.url], lease=LEASE)),
            "after two leases without etcd": _seconds(lambda: _stand(etcd, 2 * LEASE), watchers, size),
        }
        began = time.process_time()
        time.sleep(LEASE)
        share = (time.process_time() - began) / LEASE / size
        figures = {"KiB a member": (_resident() - before) / size, "etcd MiB": etcd.resident() / 1024}
        for each in (*members, *watchers):
            each.close()
    return [_row(size, found, share, figures)]


def _row(size: int, found: dict[str, float], share: float, figures: dict[str, float]) -> Row:
    words = ", ".join(f"{what} {seconds:.2f} s" for what, seconds in found.items())
    value = f"{words}; {1e3 * share:.2f} ms of a core a second and member, etcd {figures['etcd MiB']:.0f} MiB"
    return Row(AREA, f"{size:,} engines", value, details={**found, **figures, "share": share})


def _record(number: int) -> EngineRecord:
    """Return a record of an engine of mixed size and release."""
    mesh, release = MESHES[number % len(MESHES)], RELEASES[number // len(MESHES) % 2]
    role = (EngineRole.PREFILL, EngineRole.DECODE)[number % 2]
    addresses = tuple(f"tcp://10.0.{number >> 8}.{number & 255}:{7600 + worker}" for worker in range(8))
    about = {"model": "m", "model_digest": release, "side": mesh, "side_key": mesh, "addresses": addresses}
    return EngineRecord(name=f"e{number}", run="1", role=role, state=EngineState.READY, **about)  # type: ignore[arg-type]


def _seconds(do: Callable[[], None], watchers: Sequence[EtcdFleet], size: int, late: EtcdFleet | None = None) -> float:
    """Return the seconds from the end of `do` until all watchers, and a late one, see all engines as of then."""
    do()
    began = time.monotonic()
    everybody = [*watchers, *([late] if late else [])]
    while not all(len(each.engines()) == size and each.age() < time.monotonic() - began for each in everybody):
        if time.monotonic() - began > PATIENCE:
            return float("inf")
        time.sleep(0.005)
    if late is not None:
        late.close()
    return time.monotonic() - began


def _resident() -> float:
    """Return the most KiB that this process has had."""
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


@contextmanager
def _running() -> Iterator[EtcdServer]:
    with tempfile.TemporaryDirectory() as folder:
        etcd = EtcdServer(Path(folder))
        try:
            yield etcd
        finally:
            etcd.kill()


def _again(etcd: EtcdServer) -> None:
    etcd.kill()
    etcd.start()


def _stand(etcd: EtcdServer, seconds: float) -> None:
    etcd.freeze()
    time.sleep(seconds)
    etcd.freeze(False)
