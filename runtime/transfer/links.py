"""What is prepared for one peer, by the layers that move together; made when first needed."""

from __future__ import annotations

from collections.abc import Callable

from kvplan.runtime.errors import LimitedError, TransportError
from kvplan.runtime.ops import logs
from kvplan.runtime.transfer.prepare import PreparedLink

Layers = frozenset[int] | None
MOST = 1024


class Links:
    """Links by layers, None for all. `make` prepares one."""

    def __init__(self, make: Callable[[Layers], PreparedLink]) -> None:
        self._make, self._made = make, dict[Layers, PreparedLink]()

    def of(self, layers: Layers) -> PreparedLink:
        """The link for some layers. Raises what preparing raises, LimitedError for too many unlike sets of layers."""
        if layers not in self._made:
            if len(self._made) >= MOST:
                raise LimitedError(f"{MOST} unlike sets of layers were fed: feed the same ones each time")
            self._made[layers] = self._make(layers)
        return self._made[layers]

    def release(self) -> None:
        """Give the prepared lists back; what the transport says against it is logged."""
        for link in self._made.values():
            try:
                link.release()
            except TransportError as error:
                logs.event(logs.WARNING, "release failed", peer=link.peer, error=error)
        self._made = {}
