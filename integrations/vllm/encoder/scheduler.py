"""The scheduler's half: the items that a step's workers save and load, the holds, and the fetches.

Nothing here copies bytes or waits for them. Requests are read by the names that vLLM gives their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kvplan.integrations.vllm.encoder.metadata import NOTHING, RemoteItem, RowsPlace, StepItems, remote_items
from kvplan.integrations.vllm.encoder.pool import PooledItem, RowPool
from kvplan.integrations.vllm.encoder.region import HERE
from kvplan.integrations.vllm.scheduler import SERVED
from kvplan.integrations.vllm.worker import LONGEST_REST
from kvplan.runtime.ops import logs


class Transfers(Protocol):
    """The transfers of items between engines, as far as the scheduler uses them."""

    @property
    def busy(self) -> bool: ...

    def hold(self, name: str, item: PooledItem) -> bool: ...

    def released(self) -> list[str]: ...

    def fetch(self, item: PooledItem, remote: RemoteItem) -> None: ...

    def let_go(self, remote: RemoteItem) -> None: ...

    def arrived(self) -> list[tuple[PooledItem, Exception | None]]: ...

    def wait(self, seconds: float) -> None: ...


@dataclass(frozen=True, slots=True)
class PoolOwner:
    """The engine from the view of its peers: its name, address and public key; and whether it saves and loads items."""

    engine: str
    host: str = ""
    port: int = 0
    key: str = ""
    saves: bool = True
    loads: bool = True


@dataclass(slots=True)
class Announced:
    """A request's announcement of its items, by hash.

    `remote` are those that were not fetched yet, `wanted` those that should come from elsewhere. At the time `until`
    the request stops waiting for room.
    """

    remote: dict[str, RemoteItem]
    wanted: set[str]
    until: float


@dataclass(slots=True)
class EncoderScheduler:
    """The state of all items. `signed` says whether a worker has written the rows of an item to the pool.

    `refuses` says why a request may not name a host, empty if it may; `encodable` whether the engine can encode an item
    itself. A request waits for room in the pool for `patience` seconds.
    """

    owner: PoolOwner
    pool: RowPool
    transfers: Transfers
    signed: Callable[[int, int], bool]
    clock: Callable[[], float]
    refuses: Callable[[str], str] = lambda host: ""
    encodable: Callable[[Any], bool] = lambda feature: True
    patience: float = 120.0
    _step: int = HERE
    _announced: dict[str, Announced] = field(default_factory=dict)
    _loads: dict[str, PooledItem] = field(default_factory=dict)
    _unsaved: dict[str, PooledItem] = field(default_factory=dict)
    _holds: dict[str, PooledItem] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)

    # Items that other engines encode

    def available(self, request: Any, computed: int) -> bool:
        """Whether a request need not wait for an item. `computed` tokens of it are in caches already."""
        if not self.owner.loads:
            return True
        self._settle()
        announced = self._announcement(request)
        needed = {each.identifier: each for each in request.mm_features if _end(each) > computed}
        if not all(self._is_same_item(hash, each, request) for hash, each in needed.items()):
            return False
        absent = {hash: each for hash, each in needed.items() if not self._is_in_pool(hash, request, announced)}
        fetched = {hash: each for hash, each in absent.items() if hash in announced.remote}
        given_up = [each for hash, each in absent.items() if hash not in fetched and hash in announced.wanted]
        if fetched and not self._fetch(fetched, request, announced):
            given_up += fetched.values()
        if not all(self._give_up(each, request, announced) for each in given_up):
            return False
        return not any(self._is_expected(hash, announced) for hash in needed)

    def has(self, hash: str) -> bool:
        """Whether workers can load an item."""
        item = self.pool.find(hash)
        return self.owner.loads and item is not None and item.ready

    def allocated(self, feature: Any) -> None:
        """Load an item that the engine's encoder cache takes, in this step if it is ready; otherwise it is encoded."""
        if self.has(feature.identifier):
            item = self.pool.find(feature.identifier)
            assert item is not None
            self._loads[item.hash] = item

    def passed(self, request: Any, feature: Any) -> None:
        """Note that a request has passed an item and no longer needs it."""
        if (item := self.pool.find(feature.identifier)) is not None:
            item.users.discard(request.request_id)

    def unavailable(self) -> set[str]:
        """Return the requests with an item that no engine can provide, each once."""
        lost, self._lost = self._lost, set()
        return lost

    # Steps

    def orders(self, scheduled: Iterable[Any], tokens: int) -> StepItems:
        """Return the orders of a step of `tokens` tokens in all. `scheduled` are the requests that are new in it."""
        self._settle()
        for each in scheduled if self.owner.saves else ():
            self._save(each.req_id, each.mm_features)
        if not tokens:
            # Engines step without pause while a request waits, which would starve the thread that moves it.
            if self.transfers.busy:
                self.transfers.wait(LONGEST_REST)
            return NOTHING
        self._step += 1
        loads, self._loads = self._loads, {}
        self._unsaved = {hash: item for hash, item in self._unsaved.items() if self._is_unsaved(item)}
        for item in (*loads.values(), *self._unsaved.values()):
            item.step = self._step
        return StepItems(self._step, _places(self._unsaved.values()), _places(loads.values()))

    def finished(self, request: Any) -> dict[str, dict[str, object]]:
        """End a request. Return by hash the parameters of its held items for a prefill engine."""
        announced = self._announced.pop(request.request_id, None)
        for remote in () if announced is None else announced.remote.values():
            self.transfers.let_go(remote)
        held: dict[str, dict[str, object]] = {}
        if self.owner.saves and request.status.name in SERVED:
            held = self._hold(request)
        for feature in request.mm_features:
            self.passed(request, feature)
        return held

    def _settle(self) -> None:
        """Note arrived items, and ended holds."""
        for item, error in self.transfers.arrived():
            item.ready = error is None
            if error is not None:
                logs.event(logs.WARNING, "item not fetched", item=item.hash, error=error)
                self.pool.drop(item)
        for name in self.transfers.released():
            if (held := self._holds.pop(name, None)) is not None:
                held.users.discard(name)

    def _announcement(self, request: Any) -> Announced:
        """Return a request's announcement, read once."""
        if (announced := self._announced.get(request.request_id)) is None:
            params = request.ec_transfer_params
            remote = remote_items(params)
            for hash, item in list(remote.items()):
                if refused := self.refuses(item.host):
                    logs.event(logs.WARNING, "item not fetched", item=hash, error=refused)
                    del remote[hash]
            wanted = set(params) if isinstance(params, Mapping) else set()
            announced = Announced(remote, wanted, self.clock() + self.patience)
            self._announced[request.request_id] = announced
        return announced

    def _is_same_item(self, hash: str, feature: Any, request: Any) -> bool:
        """Whether the pool's item under a hash may be this item. If hashes are given by hand, rows may differ.

        An item that no request needs is dropped, and so are rows that no engine brings. Otherwise the request fails, as
        in the engine's own cache.
        """
        item = self.pool.find(hash)
        if item is None or (item.rows == _rows(feature) and (item.users or item.ready or item.arriving)):
            return True
        if not (item.users or item.arriving):
            self.pool.drop(item)
            return True
        error = f"the pool has {item.rows} rows under this hash, the request {_rows(feature)}"
        logs.event(logs.WARNING, "item is another one", request=request.request_id, item=hash, error=error)
        self._lost.add(request.request_id)
        return False

    def _is_in_pool(self, hash: str, request: Any, announced: Announced) -> bool:
        """Whether the pool has or gets an item, which then stays until the request has passed it."""
        item = self.pool.find(hash)
        if item is None or not (item.ready or item.arriving):
            return False
        self.pool.use(item, request.request_id)
        if item.ready and (spare := announced.remote.pop(hash, None)) is not None:
            self.transfers.let_go(spare)
        return True

    def _is_expected(self, hash: str, announced: Announced) -> bool:
        """Whether an item is being fetched, or waits for room."""
        item = self.pool.find(hash)
        return hash in announced.wanted and not (item is not None and item.ready)

    def _fetch(self, features: dict[str, Any], request: Any, announced: Announced) -> bool:
        """Begin to fetch items, all at once, because two requests that each have half of their items would wait
        forever.

        False if no engine can provide them: they differ from the announcement, or there is no room for them.
        """
        sizes = {hash: _rows(feature) for hash, feature in features.items()}
        different = [hash for hash, rows in sizes.items() if announced.remote[hash].rows != rows]
        if different:
            why = "the encode engine has other rows of it: a hash was given by hand, or processors differ"
            logs.event(logs.WARNING, "item not fetched", item=different[0], error=why)
            return False
        items = None if any(map(self.pool.find, sizes)) else self.pool.take(sizes, request.request_id)
        for item in items or ():
            self.transfers.fetch(item, announced.remote.pop(item.hash))
        return items is not None or (self.pool.fits(sizes) and self.clock() < announced.until)

    def _give_up(self, feature: Any, request: Any, announced: Announced) -> bool:
        """Note that an item does not come from elsewhere. Return whether the engine can encode it."""
        announced.wanted.discard(feature.identifier)
        if (remote := announced.remote.pop(feature.identifier, None)) is not None:
            self.transfers.let_go(remote)
        if self.encodable(feature):
            logs.event(logs.WARNING, "item is encoded here", request=request.request_id, item=feature.identifier)
            return True
        logs.event(logs.WARNING, "item is nowhere", request=request.request_id, item=feature.identifier)
        self._lost.add(request.request_id)
        return False

    # Items that this engine encodes

    def _save(self, request: str, features: Sequence[Any]) -> None:
        """Order workers to save a new request's items that the pool lacks."""
        for feature in features:
            hash, rows = feature.identifier, _rows(feature)
            item = self.pool.find(hash)
            if item is not None and item.rows == rows:
                self.pool.use(item, request)
            elif item is None and (taken := self.pool.take({hash: rows}, request)) is not None:
                item = taken[0]
            else:
                logs.event(logs.WARNING, "no room for an item", item=hash, rows=rows)
                continue
            if not (item.ready or item.arriving):
                self._unsaved[hash] = item

    def _is_unsaved(self, item: PooledItem) -> bool:
        """Whether an item is still to be saved: a request needs it, and no worker has done it."""
        item.ready = item.ready or self.signed(item.first, item.ticket)
        return bool(item.users) and not item.ready

    def _hold(self, request: Any) -> dict[str, dict[str, object]]:
        """Hold each item of a request once, under a name of its own."""
        found: dict[str, dict[str, object]] = {}
        for hash in dict.fromkeys(feature.identifier for feature in request.mm_features):
            item = self.pool.find(hash)
            if item is None or self._is_unsaved(item) or not item.ready:
                continue
            name = f"{request.request_id}#{item.ticket}"
            if self.transfers.hold(name, item):
                self.pool.use(item, name)
                self._holds[name] = item
                found[hash] = self._remote(name, item).params()
        return found

    def _remote(self, name: str, item: PooledItem) -> RemoteItem:
        owner = self.owner
        return RemoteItem(owner.engine, name, owner.host, owner.port, item.rows, item.first, owner.key)


def _places(items: Iterable[PooledItem]) -> dict[str, RowsPlace]:
    return {item.hash: RowsPlace(item.first, item.rows, item.ticket) for item in items}


def _rows(feature: Any) -> int:
    """Return the rows of an item: positions of the prompt without an embedding have none."""
    rows: int = feature.mm_position.get_num_embeds()
    return rows


def _end(feature: Any) -> int:
    """Return the position of the token behind an item."""
    end: int = feature.mm_position.offset + feature.mm_position.length
    return end
