"""SGLang's own environment, outside the checkout: made once, by pinned requirements, and shared by all checkouts.

1.6 GB, and a minute. KVPLAN_SGLANG_ENV names one that is there already.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.engine_environment import EngineEnvironment, complete, do, place_of
from tests.paths import ROOT, TESTS

REQUIREMENTS = TESTS / "sglang" / "requirements.txt"
# The metadata that pip writes for an installed kvplan: SGLang finds plugins by it.
METADATA = "Metadata-Version: 2.1\nName: kvplan\nVersion: 0\n"
ENTRY = "[sglang.srt.plugins]\nkvplan = kvplan.integrations.sglang:register\n"
SGLANG = EngineEnvironment("SGLang", "sglang", REQUIREMENTS, "KVPLAN_SGLANG_ENV", "1.6 GB, a minute", "make sglang")
cached, ready = SGLANG.cached, SGLANG.ready
# In folders of their own: if Triton were in the environment, SGLang's other layers would want it, too.
TRITON, ROUTER = (TESTS / "sglang" / f"requirements-{name}.txt" for name in ("triton", "router"))


def triton() -> Path:
    """The folder that has Triton, installed once: 1 GB."""
    return _beside("triton", TRITON)


def router() -> Path:
    """The folder that has SGLang's router, installed once: 90 MB."""
    return _beside("sglang-router", ROUTER)


def _beside(word: str, requirements: Path) -> Path:
    folder, pip = place_of(word, requirements), (str(ready()), "-m", "pip", "install", "--quiet")
    if not complete(folder).exists():
        print(f"installing {word} in {folder}", flush=True)
        do(*pip, "--no-deps", "--no-compile", "--upgrade", "--target", str(folder), "-r", str(requirements))
        complete(folder).touch()
    return folder


def paths(folder: Path, *more: Path) -> str:
    """PYTHONPATH by which engines find this checkout, and SGLang its plugin, whose metadata is written to `folder`."""
    about = folder / "metadata" / "kvplan-0.dist-info"
    about.mkdir(parents=True, exist_ok=True)
    (about / "METADATA").write_text(METADATA)
    (about / "entry_points.txt").write_text(ENTRY)
    return os.pathsep.join(map(str, (ROOT / "src", ROOT, about.parent, *more)))
