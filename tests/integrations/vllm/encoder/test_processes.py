"""An engine that encodes in a process of its own: its items are fetched from there, over NIXL, and it may be killed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.demo.test_demo import needs_nixl
from tests.integrations.vllm.encoder.items import Engine, content, engines, request
from tests.runtime.helpers.waiting import until

pytestmark = needs_nixl
ITEMS = {"image": 2000, "clip": 5}


def encoder(folder: Path, line: Connection) -> None:
    """Encode what is asked for, and say whether it is still held."""
    with engines(folder, "encode", pool_rows=4096) as (encode,):
        while (name := line.recv()) is not None:
            line.send(encode.held() if name == "held" else encode.encode(request(name, ITEMS))[0])


class Encoder:
    """The process, which answers on a line."""

    def __init__(self, folder: Path) -> None:
        spawning = multiprocessing.get_context("spawn")
        self.line, there = spawning.Pipe()
        self.process = spawning.Process(target=encoder, args=(folder, there), daemon=True)
        self.process.start()

    def ask(self, word: str) -> Any:
        self.line.send(word)
        assert self.line.poll(60)
        return self.line.recv()

    def close(self) -> None:
        if self.process.is_alive():
            self.line.send(None)
        self.process.join(30)
        assert not self.process.is_alive()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Encoder, Engine]]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    encode = Encoder(tmp_path)
    with engines(tmp_path, "prefill", pool_rows=4096, lease_s=5, hold_s=2, connect=5, timeout_s=10) as (prefill,):
        yield encode, prefill
    encode.close()


def test_items_are_fetched_from_another_process_and_a_killed_one_is_done_without(pair: tuple[Encoder, Engine]) -> None:
    encode, prefill = pair
    loaded = prefill.take(request("r", ITEMS, encode.ask("r")))
    assert all(torch.equal(loaded[hash], content(hash, rows)) for hash, rows in ITEMS.items())
    until(lambda: not encode.ask("held"))
    for item in list(prefill.scheduler.pool):
        prefill.scheduler.pool.drop(item)
    params = encode.ask("s")
    encode.process.kill()
    encode.process.join()
    late = request("s", ITEMS, params)
    until(lambda: prefill.idle() and prefill.scheduler.available(late, 0))
    assert not any(prefill.scheduler.has(hash) for hash in ITEMS), "the engine encodes them itself"
