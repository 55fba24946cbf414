"""A calibration as the text of a machine file, with the conditions that it holds for."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
from datetime import date
from pathlib import Path

from kvplan.calibrate.measure import Calibration

CPU = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .,()/@_-]*")
MOVERS = {"pull": "read by decode", "push": "written by prefill"}


def machine_text(name: str, calibration: Calibration, mem_type: str, how: str) -> str:
    """Return the file of the machine `name`; `how` says by which command, with which rounds and sizes."""
    rates = calibration.rates
    measured = {
        "machine": f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        "transport": f"{_transport()}, two processes of one machine, {MOVERS[calibration.mode]}",
        "memory": mem_type,
        "date": date.today().isoformat(),
        "how": f"{how}; predicts its own times within {100 * rates.error:.0f} %",
    }
    lines = [
        "kvplan: 1",
        f"machine: {name}",
        f"title: {_scalar(f'{processor()}, {mem_type}')}",
        "measured:",
        *(f"  {key}: {_scalar(value)}" for key, value in measured.items()),
        f"transfer_us: {1e6 * rates.transfer:.0f}",
        f"slice_us: {1e6 * rates.slice:.0f}",
        f"cold_us: {1e6 * rates.cold:.0f}",
        f"descriptor_ns: {1e9 * rates.descriptor:.0f}",
        f"wire: {_rate(1 / rates.byte if rates.byte else float('inf'))}",
        "copies:",
        *(f"  - {{together: {together}, rate: {_rate(rate)}}}" for together, rate in calibration.copies.items()),
    ]
    return "".join(f"{line}\n" for line in lines)


def processor() -> str:
    """Return the best known name of this machine's processor."""
    try:
        name = CPU.search(Path("/proc/cpuinfo").read_text())
    except OSError:
        name = None
    return name[1].strip() if name else platform.machine()


def _transport() -> str:
    """Return NIXL's release, and UCX's allowed transports if they are set."""
    from kvplan.runtime.transport.nixl import api

    package = str(api().__name__).partition(".")[0].replace("_", "-")
    limited = f", UCX_TLS={os.environ['UCX_TLS']}" if "UCX_TLS" in os.environ else ""
    return f"{package} {importlib.metadata.version(package)}{limited}"


def _scalar(text: str) -> str:
    return text if PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _rate(bytes_a_second: float) -> int:
    """Return MB, at least 1."""
    return max(1, round(min(bytes_a_second, 1e15) / 1e6))
