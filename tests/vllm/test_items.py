"""Real engines of vLLM, one that encodes and one that prefills: the tokens are those of one engine alone."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.paths import ROOT
from tests.vllm import environment, installed
from tests.vllm.process import ENVIRONMENT, tail

pytestmark = [pytest.mark.vllm, pytest.mark.xdist_group("vllm")]
LONGEST_S = 300
GAP = 1e-4
# Seconds of clips: one, several of different lengths, the same twice, and one that fills the encoder.
PROMPTS = [[0.7], [2.0, 0.3], [1.0, 1.0], [5.0]]


class Process:
    """An engine of this role in a process of its own."""

    def __init__(self, python: Path, folder: Path, *words: str) -> None:
        paths = os.pathsep.join(map(str, (ROOT, ROOT / "src", folder)))
        own = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(folder / "cache"), "VLLM_TARGET_DEVICE": "cpu"}
        self._path = folder / f"{'-'.join(words[:1])}.log"
        self._log = self._path.open("w")
        self._process = subprocess.Popen(
            [str(python), "-W", "ignore", "-m", "tests.vllm.items", words[0], str(folder), *words[1:]],
            cwd=folder,
            env={**os.environ, **ENVIRONMENT, **own},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, tail(self._path)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, seed: int, seconds: list[float], tokens: int = 8, params: Any = None) -> dict[str, Any]:
        assert self._process.stdin is not None
        asked = {"seed": seed, "seconds": seconds, "tokens": tokens, "params": params}
        self._process.stdin.write(f"{json.dumps(asked)}\n")
        self._process.stdin.flush()
        return self.read()

    def logged(self, event: str) -> int:
        return self._path.read_text().count(event)

    def close(self) -> None:
        self._process.communicate(timeout=LONGEST_S)
        self._log.close()
        assert self._process.returncode == 0, tail(self._path)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Process]]:
    try:
        python = environment.cached()
    except environment.UnavailableError as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("items")
    installed.describe(folder)
    Process(python, folder, "make").close()
    with ExitStack() as running:
        made = {role: Process(python, folder, role) for role in ("alone", "encode", "prefill")}
        for each in made.values():
            running.callback(each.close)
            assert each.read() == {"ready": True}
        yield made


def right(here: dict[str, Any], alone: dict[str, Any]) -> bool:
    pairs = zip(here["logprobs"], alone["logprobs"], strict=True)
    return here["tokens"] == alone["tokens"] and max(abs(one - other) for one, other in pairs) < GAP


@pytest.mark.parametrize("seed", range(len(PROMPTS)))
def test_tokens_are_those_of_one_engine(engines: dict[str, Process], seed: int) -> None:
    seconds = PROMPTS[seed]
    encoded = engines["encode"].ask(seed, seconds, tokens=1)
    assert len(encoded["params"]) == len(encoded["encoded"]) == len(seconds)
    here = engines["prefill"].ask(seed, seconds, params=encoded["params"])
    assert here["encoded"] == [], "all items came from the engine that encodes"
    assert right(here, engines["alone"].ask(seed, seconds))


def test_what_the_encode_engine_has_already_is_told_again(engines: dict[str, Process]) -> None:
    again = engines["encode"].ask(0, PROMPTS[0], tokens=1)
    assert again["encoded"] == []
    assert again["params"]


def test_items_that_nobody_holds_are_encoded_on_prefill(engines: dict[str, Process]) -> None:
    params = engines["encode"].ask(7, [0.9], tokens=1)["params"]
    lost = {hash: {**item, "remote_request_id": "never-held"} for hash, item in params.items()}
    here = engines["prefill"].ask(7, [0.9], params=lost)
    assert here["encoded"] == list(params)
    assert engines["prefill"].logged("item not fetched")
    assert right(here, engines["alone"].ask(7, [0.9]))
