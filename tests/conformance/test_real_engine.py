"""Facts that vLLM's code gives without an engine, compared with a real engine on CPUs, for a small model of each kind.

The engine is the release of `make vllm`, the facts are those of the newest one. Both must say the same of each layer.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
from tests.conformance.corpus import FOLDER, configurations, facts, releases
from tests.vllm import environment

TINY = "tiny--"
KNOWN = {key: found for key, found in configurations().items() if key.startswith(TINY)}
# The fields that layers are compared by. Block sizes follow from these and from the kernels of the device.
SAID = ("num_kv_heads", "head_size", "sliding_window", "attention_chunk_size", "shapes")


@cache
def engines() -> Mapping[str, dict[str, Any]]:
    """The layers of a real engine for each small model, by key. Skips without an engine."""
    try:
        python = environment.cached()
    except environment.UnavailableError as reason:
        pytest.skip(str(reason))
    text = "".join(f"{json.dumps({'key': key, 'config': found.config})}\n" for key, found in KNOWN.items())
    command = ["nice", "-n", "5", str(python), str(FOLDER / "real_engine.py")]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return {answer["key"]: answer for answer in map(json.loads, done.stdout.splitlines())}


def said(specs: Mapping[str, Any]) -> dict[str, Any]:
    """A layer's fields, without those that are unset."""
    return {name: specs[name] for name in SAID if specs.get(name) is not None}


@pytest.mark.vllm
@pytest.mark.parametrize("key", KNOWN)
def test_a_real_engine_says_the_same_of_each_layer(key: str) -> None:
    answer = engines()[key]
    assert "specs" in answer, answer["error"]
    (dump, *_) = facts(releases()[-1])[key].dumps
    rehearsed = {layer["name"]: said(dump["specs"][layer["spec"]]) for layer in dump["layers"]}
    assert rehearsed == {name: said(specs) for name, specs in answer["specs"].items()}
