"""Peers of a NIXL agent: those that were met, those whose connection is lost, and removed ones that stay connected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakSet

from kvplan.runtime.errors import NotBegunError, PeerLostError, TransportError
from kvplan.runtime.ops import logs
from kvplan.runtime.transport.nixl_handles import AgentOwner, NixlList, NixlTransfer, errors

# Seconds between two empty messages that test whether a peer's connection still works.
PEER_PROBE_SECONDS = 0.2
# The most removed peers that stay connected. If NIXL removes a live agent, it leaves the connection open on both sides,
# and opens another one when the agent is met again. A dead agent has closed its connection.
KEPT = 1024


class NixlPeers:
    """The peers of the agent of `owner`. `given` are its lists and transfers in use, `met` the names of the peers."""

    def __init__(self, owner: AgentOwner, given: WeakSet[NixlList | NixlTransfer], clock: Callable[[], float]) -> None:
        self._owner, self._given, self._clock = owner, given, clock
        self.met = set[str]()
        self._names: dict[bytes, str] = {}
        self._lost: set[str] = set()
        self._probed: dict[str, float] = {}

    def known(self) -> list[str]:
        """Return all peers that NIXL knows."""
        return sorted(self.met.union(self._names.values()))

    def clear(self) -> None:
        """Remove all peers, after the agent has ended."""
        self.met.clear()
        self._names.clear()
        self._lost.clear()

    def add(self, metadata: bytes) -> str:
        known = self._names.get(metadata)
        if known in self.met and known not in self._lost:
            return known
        peer = self._connect(metadata) if known is None or known in self._lost else known
        if peer in self._kept():
            self._probe(self._owner.agent, peer)
        if peer in self._lost:
            self._renew(peer, metadata)
        self.met.add(peer)
        self._names[metadata] = peer
        return peer

    def remove(self, peer: str) -> None:
        if peer not in self.met:
            return
        for given in list(self._given):
            if isinstance(given, NixlList) and given.peer == peer:
                given.cut()
        self.met.discard(peer)
        self._probed.pop(peer, None)
        self._names = dict(sorted(self._names.items(), key=lambda met: met[1] == peer))
        for gone in [peer] if peer in self._lost else self._kept()[:-KEPT]:
            self._disconnect(gone)

    def lost(self, peer: str) -> bool:
        """See `Transport.lost`. Rarely sends an empty message: nothing else reveals that a process has died."""
        agent = self._owner.agent
        if peer in self.met and peer not in self._lost and self._due(peer):
            self._probe(agent, peer)
        return self.broken(peer)

    def broken(self, peer: str) -> bool:
        return peer in self._lost and peer in self.met

    def found_lost(self, peer: str) -> None:
        """Note that a call has found the connection to a peer broken."""
        if peer in self.met or peer in self._names.values():
            self._lost.add(peer)

    def check_met(self, peer: str | None) -> None:
        """Raises PeerLostError if a peer was not met, or was removed: NIXL may still know it."""
        if not self._owner.closed and peer is not None and peer not in self.met:
            raise PeerLostError(f"peer {peer} is not met, or was forgotten: connect again")

    def _kept(self) -> list[str]:
        """Return the removed peers that stay connected, the one removed first at the front."""
        return [name for name in dict.fromkeys(self._names.values()) if name not in self.met]

    def _renew(self, peer: str, metadata: bytes) -> None:
        """Meet a peer again after its connection broke. Raises NotBegunError if a transfer with it is in progress."""
        transfers = [one for one in self._given if isinstance(one, NixlTransfer) and one.peer == peer and one.open]
        if under_way := sum(not one.failed for one in transfers):
            text = f"the connection to {peer} broke, and {under_way} transfers by it have not ended"
            raise NotBegunError(f"{text}: ask again when they have")
        for failed in transfers:
            failed.cut()
        used = peer in self.met
        self.remove(peer) if used else self._disconnect(peer)
        try:
            self._connect(metadata)
        except TransportError:
            if used:
                self.met.add(peer)
                self._lost.add(peer)
                self._names[metadata] = peer
            raise

    def _connect(self, metadata: bytes) -> str:
        with errors(self._owner.bindings):
            name = self._owner.agent.add_remote_agent(metadata)
        return name.decode() if isinstance(name, bytes) else str(name)

    def _disconnect(self, peer: str) -> None:
        """Have NIXL remove a peer's agent."""
        self._lost.discard(peer)
        self._names = {data: name for data, name in self._names.items() if name != peer}
        with errors(self._owner.bindings):
            self._owner.agent.remove_remote_agent(peer)

    def _probe(self, agent: Any, peer: str) -> None:
        try:
            with errors(self._owner.bindings):
                agent.send_notif(peer, b"")
        except PeerLostError:
            self.found_lost(peer)
        except TransportError as error:
            logs.event(logs.DEBUG, "probe failed", peer=peer, error=error)

    def _due(self, peer: str) -> bool:
        time = self._clock()
        if time - self._probed.get(peer, -PEER_PROBE_SECONDS) < PEER_PROBE_SECONDS:
            return False
        self._probed[peer] = time
        return True
