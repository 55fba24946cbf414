"""No request imports anything: an import takes seconds on a busy machine, and a worker answers nobody meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from tests.paths import ROOT

# Held and moved between workers that have met; what was imported since then is printed.
REQUEST = """
import sys
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask
from tests.runtime.helpers.worlds import world

made = world(Shape(2), Shape(1), mode={mode!r})
request, before = ask(made, (0, 8)), set(sys.modules)
for worker in made.prefill:
    worker.hold("r", request.prefill)
transfer = made.decode[0].submit(request, 20)
while not transfer.poll():
    made.decode[0].rest(0.001)
assert transfer.error is None, transfer.error
print(*sorted(set(sys.modules) - before))
made.close()
"""


@pytest.mark.parametrize("mode", ["pull", "push"])
def test_the_first_request_imports_nothing(mode: str) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-c", REQUEST.format(mode=mode)]
    said = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True, timeout=120
    )
    assert said.stdout.split() == []


ALONE = """
import sys
from kvplan.runtime import *
print(*sorted({name for module in sys.modules for name in (module.partition(".")[0], ".".join(module.split(".")[:2]))}))
"""
# The rooms above the runtime, and what their extras install.
ABOVE = {"kvplan.store", "kvplan.fleet", "kvplan.registry", "kvplan.remote"}
EXTRAS = {"etcd3gw", "requests", "urllib3", "fsspec", "cryptography"}


def test_the_runtime_loads_no_room_above_it() -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    command = [sys.executable, "-c", ALONE]
    said = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True, timeout=120
    )
    loaded = set(said.stdout.split())
    assert "kvplan.runtime" in loaded
    assert not loaded & (ABOVE | EXTRAS)
