"""Each rule that keeps the law, undone: some walk finds other bytes than those of the hold that was told of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace as replaced
from itertools import product
from typing import Any

import msgspec
import pytest
from tests.runtime.model.protocol import BrokenLawError, Protocol
from tests.runtime.model.walk import walk

from kvplan.runtime.control.messages import pack
from kvplan.runtime.protocol.source import SourceRequest
from kvplan.runtime.protocol.writes import RequestWrites
from kvplan.runtime.transfer import chunks

Patch = pytest.MonkeyPatch
WALKS = 60


def a_push_believes_what_decode_was_told(patch: Patch) -> None:
    want = RequestWrites.want

    def believing(self: Any, client: Any, asked: Any, source: SourceRequest) -> None:
        told = asked.prefill if source.tables is None else pack(source.tables)
        want(self, client, msgspec.structs.replace(asked, prefill=told), source)

    patch.setattr(RequestWrites, "want", believing)


def a_chunk_is_not_compared(patch: Patch) -> None:
    patch.setattr("kvplan.runtime.transfer.chunks.check_told", lambda *_: None)


def a_chunk_of_a_name_held_again_need_not_name_all(patch: Patch) -> None:
    part = chunks.part
    patch.setattr(chunks, "part", lambda rules, request, chunk, *more: part(
        rules, request, replaced(chunk, only=False), *more
    ))  # fmt: skip


def a_fed_request_that_is_read_whole_is_not_compared(patch: Patch) -> None:
    differs = SourceRequest.differs
    patch.setattr(SourceRequest, "differs", lambda self, told: "" if self.tables is None else differs(self, told))


def nothing_is_compared(patch: Patch) -> None:
    patch.setattr(SourceRequest, "differs", lambda *_: "")


@pytest.mark.parametrize(
    "mutate",
    [
        a_push_believes_what_decode_was_told,
        a_chunk_is_not_compared,
        pytest.param(a_chunk_of_a_name_held_again_need_not_name_all, marks=pytest.mark.full),
        a_fed_request_that_is_read_whole_is_not_compared,
        nothing_is_compared,
    ],
    ids=lambda mutate: mutate.__name__,
)
def test_a_walk_finds_it(mutate: Callable[[Patch], None], monkeypatch: Patch) -> None:
    mutate(monkeypatch)
    for seed, mode, workers in product(range(WALKS), ("pull", "push"), (1, 2)):
        if not _holds(monkeypatch, mode, workers, seed):
            return
    pytest.fail("no walk finds it")


def _holds(monkeypatch: Patch, mode: str, workers: int, seed: int) -> bool:
    with monkeypatch.context() as patch:
        model = Protocol(patch, mode, workers, seed)
        try:
            walk(model, 120)
        except BrokenLawError:
            return False
    return True
