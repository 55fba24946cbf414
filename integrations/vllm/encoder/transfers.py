"""Transfers of items: holds for prefill engines, and fetches from encode engines. Nothing waits."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from threading import Event

from kvplan.integrations.shared.meetings import PrefillMeetings, trusted
from kvplan.integrations.vllm.encoder.metadata import RemoteItem
from kvplan.integrations.vllm.encoder.pool import PooledItem, blocks_of
from kvplan.integrations.vllm.loads import LoadTimes, tell
from kvplan.plan.block_tables import Tables
from kvplan.plan.errors import KvplanError
from kvplan.plan.request import Request
from kvplan.plan.types import Blocks
from kvplan.runtime.checksum.checksum import Sample
from kvplan.runtime.decode.prefill_engine import Peer
from kvplan.runtime.decode.transfer import Transfer
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.ops import logs
from kvplan.runtime.prefill.worker import PrefillWorker

# Checksums of a longer item cover one row in so many: summing all rows of a page's image takes longer than the move.
LONG, EVERY = 1024, 16


@dataclass(frozen=True, slots=True)
class PoolLayout:
    """The plan's name of the pool's group, and the rows of a block."""

    group: str
    block_rows: int

    def tables(self, first: int, rows: int) -> Tables:
        """Return the blocks of `rows` rows that begin at block `first`."""
        return {self.group: Blocks(0, range(first, first + blocks_of(rows, self.block_rows)))}


class ItemTransfers:
    """The pool's two ends: `holder` answers engines that fetch items, `reader` fetches them. Either may be missing."""

    def __init__(
        self, layout: PoolLayout, holder: PrefillWorker | None, reader: DecodeWorker | None, times: LoadTimes, mode: str
    ) -> None:
        self._layout, self._holder, self._reader, self._times, self._mode = layout, holder, reader, times, mode
        self._meetings = None if reader is None else PrefillMeetings(reader)
        self._ended: deque[tuple[PooledItem, KvplanError | None, Transfer]] = deque()
        self._refused: list[tuple[PooledItem, Exception]] = []
        # Failed fetches that may still be written.
        self._unsettled: list[tuple[PooledItem, Transfer]] = []
        self._fetching = 0
        self._news = Event()

    @property
    def busy(self) -> bool:
        """Whether items are being fetched."""
        return self._fetching > 0

    def hold(self, name: str, item: PooledItem) -> bool:
        """Hold an item under a name, which is used once; False if that is refused."""
        assert self._holder is not None
        try:
            self._holder.hold(name, self._layout.tables(item.first, item.rows), tokens=(0, item.rows))
        except KvplanError as error:
            logs.event(logs.WARNING, "item not held", item=item.hash, error=error)
            return False
        return True

    def released(self) -> list[str]:
        """Return the holds that ended since the last call: fetched items, and items that no engine fetched in time."""
        released = [] if self._holder is None else self._holder.released()
        for one in released:
            if one.why != "finished":
                logs.event(logs.WARNING, "item freed early", request=one.request, why=one.why)
        return [one.request for one in released]

    def fetch(self, item: PooledItem, remote: RemoteItem) -> None:
        """Begin to fetch an item. It is `arriving` until nothing can be written to its rows any more."""
        item.arriving = True
        self._fetching += 1
        here, there = (self._layout.tables(each.first, item.rows) for each in (item, remote))
        sample = Sample(EVERY if item.rows > LONG else 1)
        try:
            transfer = self._submit(Request(remote.request, (0, item.rows), there, here), remote, sample)
        except Exception as error:  # Data from another engine or a client must not end this one.
            self._refused.append((item, error))
            self._news.set()
            return
        transfer.on_end(partial(self._end, item))

    def let_go(self, remote: RemoteItem) -> None:
        """Tell the encode engine that an item is not needed. If that fails, a lease ends the hold."""
        release = Request(remote.request, (0, 0), {}, {})
        tell(partial(self._submit, release, remote, None), partial(_log_untold, remote))

    def arrived(self) -> list[tuple[PooledItem, Exception | None]]:
        """Return the fetches that ended since the last call: items with their error, None for those that arrived."""
        self._news.clear()
        found: list[tuple[PooledItem, Exception | None]] = list(self._refused)
        self._refused = []
        while self._ended:
            item, error, transfer = self._ended.popleft()
            found.append((item, error))
            if error is not None:
                self._unsettled.append((item, transfer))
        self._fetching -= len(found)
        for item, _ in found:
            item.arriving = False
        self._settle()
        return found

    def wait(self, seconds: float) -> None:
        """Wait until a fetch ends, but no longer than `seconds`."""
        self._news.wait(seconds)

    def close(self) -> None:
        for worker in (self._reader, self._holder):
            if worker is not None:
                worker.close()

    def _settle(self) -> None:
        assert self._reader is not None or not self._unsettled
        waiting = []
        for item, transfer in self._unsettled:
            item.arriving = not (self._reader is None or self._reader.settled(transfer))
            if item.arriving:
                waiting.append((item, transfer))
        self._unsettled = waiting

    def _submit(self, request: Request, remote: RemoteItem, sample: Sample | None) -> Transfer:
        assert self._reader is not None
        assert self._meetings is not None
        meeting = self._meetings.meeting((remote.engine, remote.address), partial(self._meet, remote))
        return self._reader.submit(request, self._times.load, meeting, checksum=sample, wait=self._times.hold)

    def _meet(self, remote: RemoteItem) -> Future[Peer]:
        assert self._reader is not None
        key = trusted(self._reader.keys, remote.key, f"encode engine {remote.engine!r}")
        return self._reader.connect_soon(remote.address, self._times.connect, key, self._mode, remote.engine)

    def _end(self, item: PooledItem, transfer: Transfer) -> None:
        """Record the end of a fetch, on the polling thread."""
        self._ended.append((item, transfer.error, transfer))
        self._news.set()


def _log_untold(remote: RemoteItem, error: Exception) -> None:
    logs.event(logs.INFO, "encode engine not told", request=remote.request, error=error)
