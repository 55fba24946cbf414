"""Checksums that decode workers send are compared beside the poll, which must not wait for gigabytes to be summed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from kvplan.plan import request as requests
from kvplan.plan.block_tables import Table, Tables
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks
from kvplan.runtime.checksum.checksum import Sample, check, of_read
from kvplan.runtime.control.messages import Done
from kvplan.runtime.control.wire import unpack
from kvplan.runtime.errors import ChecksumError
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.prefill.clients import DecodeClient
from kvplan.runtime.prefill.source import SourceRequest

MOST = 256


@dataclass(frozen=True, slots=True)
class Comparison:
    """What came of one comparison: `problem` is empty where all is alike."""

    guest: DecodeClient
    done: Done
    problem: str
    code: str


class Verifier:
    """Comparisons under way, one at a time, in the order in which they came."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._threads = ThreadPoolExecutor(1, "kvplan-checksum")
        self._waiting: dict[tuple[DecodeClient, str], Future[Comparison]] = {}

    def ask(self, guest: DecodeClient, done: Done, stock: SourceRequest | None) -> Comparison | None:
        """Begin to compare; a verdict at once where there is nothing to compare, or it cannot be."""
        if not done.sums and done.sample is None:
            return Comparison(guest, done, "", "")
        if (guest, done.request) in self._waiting or len(self._waiting) >= MOST:
            return Comparison(guest, done, "too many checksums are being compared: ask again", BadRequestError.code)
        brought = {} if stock is None else _brought(stock)
        self._waiting[guest, done.request] = self._threads.submit(_compare, self._pool, guest, done, brought)
        return None

    def leave(self, guest: DecodeClient, request: str) -> None:
        """A request is given up: what its comparison says is not asked for any more."""
        if (future := self._waiting.pop((guest, request), None)) is not None:
            future.cancel()

    def verdicts(self) -> list[Comparison]:
        """Those that have come since the last call."""
        found = {key: future for key, future in self._waiting.items() if future.done()}
        for key in found:
            del self._waiting[key]
        return [future.result() for future in found.values()]

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)


def _compare(pool: Pool, guest: DecodeClient, done: Done, brought: Tables) -> Comparison:
    try:
        problem = _unlike(pool, guest, done, brought)
        return Comparison(guest, done, problem, ChecksumError.code if problem else "")
    except KvplanError as error:
        return Comparison(guest, done, str(error), error.code)
    except Exception as error:
        text = f"the checksums cannot be compared: {type(error).__name__}: {error}"
        return Comparison(guest, done, text, BadRequestError.code)


def _unlike(pool: Pool, guest: DecodeClient, done: Done, brought: Tables) -> str:
    """What differs first, as text."""
    if done.asked is None or done.sample is None or done.asked.request != done.request:
        raise BadRequestError("checksums came without the request that they are of")
    plan, asked = guest.plan, done.asked
    tables = {**unpack(asked.prefill), **brought}
    request = Request(asked.request, asked.tokens, tables, unpack(asked.decode), asked.lengths)
    request = requests.check(plan, request, pool.blocks, {})
    mine = of_read(plan, pool.worker, guest.claimant.worker, "prefill", pool, request, Sample(*done.sample))
    try:
        check({(cache, layer): value for cache, layer, value in done.sums}, mine)
    except ChecksumError as error:
        return str(error)
    return ""


def _brought(stock: SourceRequest) -> Tables:
    """The tables that the chunks of a request named, put together."""
    found: dict[str, Table] = dict(stock.tables or {})
    for chunk in stock.chunks:
        for group, table in chunk.tables.items():
            before = found.get(group)
            both = isinstance(before, Blocks) and isinstance(table, Blocks)
            found[group] = _joined(before, table) if both else table  # type: ignore[arg-type]
    return found


def _joined(one: Blocks, other: Blocks) -> Blocks:
    """Two tables of a group as one; where both have a block, the later one's."""
    first = min(one.first, other.first)
    ids = np.full(max(one.first + one.ids.size, other.first + other.ids.size) - first, -1, np.int64)
    for table in (one, other):
        at = slice(table.first - first, table.first - first + table.ids.size)
        ids[at] = np.where(table.ids >= 0, table.ids, ids[at])
    return Blocks(first, ids)
