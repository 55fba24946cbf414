"""The scheduler's orders to its workers, and an encode engine's messages to a prefill engine through a router."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RowsPlace:
    """The place of an item's rows in the pool: from block `first` on, with its ticket there."""

    first: int
    rows: int
    ticket: int


@dataclass(frozen=True, slots=True)
class StepItems:
    """By hash, the items that workers copy into the pool if they have them, and the items that they load from it.

    `step` is greater than in every step before, or 0 if there are no orders.
    """

    step: int = 0
    saves: Mapping[str, RowsPlace] = field(default_factory=dict)
    loads: Mapping[str, RowsPlace] = field(default_factory=dict)


NOTHING = StepItems()


@dataclass(frozen=True, slots=True)
class RemoteItem:
    """An item that an encode engine holds: by the name `request`, `rows` rows in blocks from `first` on."""

    engine: str
    request: str
    host: str
    port: int
    rows: int
    first: int
    key: str = ""

    @property
    def address(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    def params(self) -> dict[str, object]:
        """Return the parameters that a router passes on for this item, unread."""
        return {
            "remote_engine_id": self.engine,
            "remote_request_id": self.request,
            "remote_host": self.host,
            "remote_port": self.port,
            "remote_num_rows": self.rows,
            "remote_first_block": self.first,
            "remote_key": self.key,
        }


# Limits for untrusted input: characters of a text, and the largest number.
LONGEST, LARGEST = 4096, 1 << 40


def remote_items(params: object) -> dict[str, RemoteItem]:
    """Return the items in `ec_transfer_params`, by hash, without incomplete ones: any client can send them."""
    if not isinstance(params, Mapping):
        return {}
    found = {hash: remote_item(each) for hash, each in params.items() if isinstance(hash, str)}
    return {hash: item for hash, item in found.items() if item is not None}


def remote_item(params: object) -> RemoteItem | None:
    if not isinstance(params, Mapping):
        return None
    texts = [params.get(f"remote_{word}") for word in ("engine_id", "request_id", "host")]
    numbers = [params.get(f"remote_{word}") for word in ("port", "num_rows", "first_block")]
    key = params.get("remote_key", "")
    if not all(map(_is_text, texts)) or not all(map(_is_number, numbers)) or not isinstance(key, str):
        return None
    (engine, request, host), (port, rows, first) = map(str, texts), map(_number, numbers)
    return RemoteItem(engine, request, host, port, rows, first, key) if 0 < port < 65536 and rows else None


def _is_text(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value
