"""Keys that decide who may connect: CURVE keys in certificate files, read again when these change; or none at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from kvplan.plan.files.index import Stamp, stamp
from kvplan.runtime.errors import KeysError
from kvplan.runtime.new_keys import write_pair
from kvplan.runtime.ops import logs

LENGTH = 40
LARGEST = 1 << 16
PUBLIC, SECRET = ".key", ".key_secret"
# Seconds for which the keys read from files are cached, however many connections ask.
PAUSE = 1.0


class PeerFiles:
    """The peers' certificates: files, and folders in which every NAME.key counts except the `own` one. Thread-safe.

    `read` returns the public key of a file, or raises KeysError. After the first read an invalid file is logged and
    admits no peer, but raises nothing; nor does a missing one.
    """

    def __init__(self, places: tuple[Path, ...], own: bytes, read: Callable[[Path], bytes]) -> None:
        """Read all files. Raises KeysError if one is not a peer's certificate."""
        self._places, self._own, self._read = places, own, read
        self._lock, self._believed_until = Lock(), 0.0
        self._files = {path: (_stamp(path), read(path)) for path in self._paths()}
        self._keys = self._peers()

    def keys(self) -> frozenset[bytes]:
        """Return the peers' keys, at most a second old."""
        with self._lock:
            if time.monotonic() >= self._believed_until:
                self._look()
                self._believed_until = time.monotonic() + PAUSE
            return self._keys

    def _look(self) -> None:
        self._files = {path: self._seen(path) for path in self._paths()}
        before, self._keys = self._keys, self._peers()
        if before != self._keys:
            changes = self._keys - before, before - self._keys
            new, gone = (",".join(sorted(key.decode() for key in keys)) for keys in changes)
            logs.event(logs.INFO, "keys changed", new=new, gone=gone, peers=len(self._keys))

    def _seen(self, path: Path) -> tuple[Stamp | None, bytes]:
        """Return a file's stamp and its key, empty if it is invalid. The file is read only if its stamp has changed."""
        now = _stamp(path)
        if path in self._files and self._files[path][0] == now:
            return self._files[path]
        try:
            return now, self._read(path)
        except KeysError as error:
            logs.event(logs.WARNING, "key file ignored", path=path, error=error)
            return now, b""

    def _peers(self) -> frozenset[bytes]:
        """Return the keys of the files, without one's own unless its file was named itself."""
        return frozenset(
            key for path, (_, key) in self._files.items() if key and (path in self._places or key != self._own)
        )

    def _paths(self) -> Iterator[Path]:
        for place in self._places:
            if place.is_dir():
                yield from sorted(place.glob(f"*{PUBLIC}"))
            else:
                yield place


@dataclass(frozen=True, slots=True)
class Plain:
    """No keys: anybody who reaches the port may read and write cache memory.

    With `loopback`, only processes of this machine reach it: sockets refuse all other addresses.
    """

    loopback: bool = False


@dataclass(frozen=True, slots=True)
class Keys:
    """One engine's key pair and the public keys of its peers, all in Z85, 40 bytes each.

    With `files`, peers' keys are read again when the files change, and `peers` are only those of the first read. Raises
    KeysError if one is not a key, or `public` does not belong to `secret`.
    """

    public: bytes
    secret: bytes = field(repr=False)
    peers: frozenset[bytes] = frozenset()
    files: PeerFiles | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        import zmq

        for what, key in (("public key", self.public), *(("peer's public key", key) for key in self.peers)):
            check(key, what)
        try:
            public = zmq.curve_public(self.secret) if len(self.secret) == LENGTH else b""
        except (zmq.ZMQError, TypeError, ValueError):
            public = b""
        if not public:
            raise KeysError(f"the secret key to {text(self.public)} is no key of {LENGTH} Z85 characters")
        if public != self.public:
            raise KeysError(f"the secret key is that of {text(public)}, not of {text(self.public)}: make both again")

    def allowed(self) -> frozenset[bytes]:
        """Return the public keys of the engines that may connect now."""
        return self.peers if self.files is None else self.files.keys()

    @classmethod
    def load(cls, own: str | Path, *peers: str | Path) -> Keys:
        """Return the keys in certificate files.

        `own` is a secret certificate (NAME.key_secret), or a folder with one. `peers` are public certificates, or
        folders in which every NAME.key counts; the default is the folder of `own`. One's own key counts as a peer's
        only if its file is named. Peers' files may be added, changed and removed at any time: see `allowed`. Raises
        KeysError.
        """
        path = _secret_file(Path(own))
        public, secret = _read(path)
        if not secret:
            raise KeysError(f"{path} is a public certificate: give the secret one, {path.stem}{SECRET}")
        files = PeerFiles(tuple(map(Path, peers)) or (path.parent,), public, _peer)
        if not files.keys():
            raise KeysError(f"no public key of a peer beside {path}: put the peers' NAME{PUBLIC} there, or name them")
        return cls(public, secret, files.keys(), files)

    @staticmethod
    def make(folder: str | Path, name: str) -> tuple[Path, Path]:
        """Write the certificates of a new key pair and return their paths, public and secret.

        Only the owner may read the secret one. Raises KeysError if either exists or cannot be written.
        """
        from zmq.auth import create_certificates

        return write_pair(Path(folder), PUBLIC, SECRET, name, lambda hidden: create_certificates(hidden, name))


def check(key: bytes, what: str) -> None:
    """Raises KeysError if `key` is not a public key in Z85."""
    from zmq.utils import z85

    try:
        right = isinstance(key, bytes) and len(key) == LENGTH and len(z85.decode(key)) == 32
    except (KeyError, ValueError, OverflowError, ArithmeticError) as error:
        raise KeysError(f"the {what} {text(key)} is no Z85: {error!r}") from error
    if not right:
        raise KeysError(f"the {what} {text(key)} is not {LENGTH} bytes of Z85")


def text(key: object) -> str:
    """Return a public key as messages show it."""
    return key[: 2 * LENGTH].decode("ascii", "replace") if isinstance(key, bytes) else type(key).__name__


def server(keys: Keys, given: bytes | None) -> bytes:
    """Return the public key that a server must have: the one given, or that of the only peer. Raises KeysError."""
    peers = keys.allowed()
    if given is None and len(peers) != 1:
        raise KeysError(f"{len(peers)} peers are known: give the public key of the one at this address")
    found = next(iter(peers)) if given is None else given
    check(found, "server's public key")
    return found


def _secret_file(own: Path) -> Path:
    if not own.is_dir():
        return own
    found = sorted(own.glob(f"*{SECRET}"))
    if len(found) != 1:
        raise KeysError(f"{own} has {len(found)} secret certificates (NAME{SECRET}): give one of them")
    return found[0]


def _peer(path: Path) -> bytes:
    public, secret = _read(path)
    if secret:
        raise KeysError(f"{path} holds a secret: of a peer give the public certificate, and keep its secret there")
    return public


def _read(path: Path) -> tuple[bytes, bytes]:
    """Return the public and the secret key of a certificate; a public certificate has an empty secret key."""
    from zmq.auth import load_certificate

    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            raise KeysError(f"{path} is no certificate: make one with `kvplan keys`")
        public, secret = load_certificate(path)
    except (OSError, ValueError, IndexError) as error:
        raise KeysError(f"{path} is no certificate: {error}") from error
    check(public, f"public key in {path}")
    return public, secret or b""


def _stamp(path: Path) -> Stamp | None:
    try:
        return stamp(path.stat())
    except OSError:
        return None
