"""Signatures of plan indexes (Ed25519, RFC 8032), so that an untrusted place may store plans, but not alter them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from kvplan.plan.errors import PlanSignatureError
from kvplan.runtime.errors import KeysError
from kvplan.runtime.new_keys import write_pair

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

FORMAT = 2
# A prefix of signed bytes, so that a signature of something else never passes for one of an index.
DOMAIN = b"kvplan plan index of a place\n"
PUBLIC, SECRET = ".sign.pub", ".sign"
LARGEST_KEY = 1 << 16


class SignedIndex(msgspec.Struct, frozen=True):
    """The text of a plans directory's index, the place that it is for, and its number.

    Readers of another place refuse it, and readers that have seen a higher number.
    """

    index: str
    place: str
    serial: int


class _Version(msgspec.Struct, frozen=True):
    format: Annotated[int, msgspec.Meta(ge=1)]


class _Envelope(_Version, frozen=True):
    key: str
    payload: str
    signature: bytes


class SigningKey:
    """The secret half of an Ed25519 key pair."""

    def __init__(self, path: Path) -> None:
        """Read a PEM file (PKCS #8, without a password). Raises KeysError."""
        ed25519, serialization = _cryptography()
        try:
            key = serialization.load_pem_private_key(_pem(path), None)
        except (ValueError, TypeError) as error:
            raise _no_key(path, "secret", error) from error
        if not isinstance(key, ed25519.Ed25519PrivateKey):
            raise _no_key(path, "secret", TypeError(type(key).__name__))
        self._key: Ed25519PrivateKey = key

    def trusted(self) -> TrustedKeys:
        """Return the public half as the only trusted key."""
        return TrustedKeys((self._key.public_key(),))

    def sign(self, signed: SignedIndex) -> bytes:
        """Return the bytes of an envelope: the signed text, the key's fingerprint, and the signature."""
        payload = json.dumps(msgspec.structs.asdict(signed), sort_keys=True)
        signature = base64.b64encode(self._key.sign(DOMAIN + payload.encode())).decode()
        key = fingerprint(self._key.public_key())
        text = json.dumps({"format": FORMAT, "key": key, "payload": payload, "signature": signature}, indent=2)
        return text.encode() + b"\n"


@dataclass(frozen=True, slots=True)
class TrustedKeys:
    """The public keys of trusted signers."""

    keys: tuple[Ed25519PublicKey, ...]

    @classmethod
    def load(cls, *places: str | Path) -> TrustedKeys:
        """Read PEM files, and folders in which every NAME.sign.pub counts. Raises KeysError, also if there is none."""
        paths = [path for place in map(Path, places) for path in _files(place)]
        if not paths:
            raise KeysError(
                f"no public key (NAME{PUBLIC}) in {', '.join(map(str, places))}: put those of the signers there"
            )
        return cls(tuple(map(_public, paths)))

    def opened(self, envelope: bytes, name: str, place: str) -> SignedIndex:
        """Return the index in an envelope.

        Raises PlanSignatureError that begins with `name` if no trusted key signed it, or not for this place.
        """
        from cryptography.exceptions import InvalidSignature

        found = _envelope(envelope, name)
        key, payload = ascii(found.key)[1:-1], found.payload.encode()
        known = {fingerprint(each): each for each in self.keys}
        if key not in known:
            raise PlanSignatureError(
                f"{name} is signed by key {key[:80]}, which is not trusted (trusted: {', '.join(sorted(known))}): "
                f"if it should be, give its NAME{PUBLIC}, too, to push with --trusted"
            )
        try:
            known[key].verify(found.signature, DOMAIN + payload)
        except InvalidSignature:
            told = f"{name} was altered after {key} signed it: find out by whom, and push again"
            raise PlanSignatureError(told) from None
        try:
            signed = msgspec.json.decode(payload, type=SignedIndex)
        except msgspec.DecodeError:
            raise PlanSignatureError(f"{name} was signed, but has no index: push again") from None
        if signed.place != place:
            raise PlanSignatureError(
                f"{name} was signed for {signed.place!a:.200}, not for {place!a:.200}: find out who copied it there; "
                f"if this is another way to the same place, or a mirror of it, give --signed-for {signed.place!a:.200}"
            )
        return signed


def make(folder: Path, name: str) -> tuple[Path, Path]:
    """Write a new key pair as PEM files and return their paths, public and secret (mode 0600).

    Raises KeysError if either exists or cannot be written.
    """
    ed25519, forms = _cryptography()
    key, pem = ed25519.Ed25519PrivateKey.generate(), forms.Encoding.PEM
    public = key.public_key().public_bytes(pem, forms.PublicFormat.SubjectPublicKeyInfo)
    secret = key.private_bytes(pem, forms.PrivateFormat.PKCS8, forms.NoEncryption())

    def write(hidden: Path) -> None:
        (hidden / f"{name}{PUBLIC}").write_bytes(public)
        (hidden / f"{name}{SECRET}").write_bytes(secret)

    return write_pair(folder, PUBLIC, SECRET, name, write)


def fingerprint(key: Ed25519PublicKey) -> str:
    """Return the first 16 hex digits of the SHA-256 of a public key's 32 bytes."""
    return sha256(key.public_bytes_raw()).hexdigest()[:16]


def _cryptography() -> tuple[Any, Any]:
    """Import the modules for keys and for their serialization. Raises KeysError if they are not installed."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise KeysError(f"signatures need cryptography ({error}): pip install 'kvplan[registry]'") from error
    return ed25519, serialization


def _public(path: Path) -> Ed25519PublicKey:
    ed25519, serialization = _cryptography()
    try:
        key = serialization.load_pem_public_key(_pem(path))
    except ValueError as error:
        raise _no_key(path, "public", error) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _no_key(path, "public", TypeError(type(key).__name__))
    found: Ed25519PublicKey = key
    return found


def _files(place: Path) -> Iterable[Path]:
    return sorted(place.glob(f"*{PUBLIC}")) if place.is_dir() else [place]


def _pem(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LARGEST_KEY)
    except OSError as error:
        raise KeysError(f"{path} cannot be read: {error.strerror}") from error


def _no_key(path: Path, half: str, error: Exception) -> KeysError:
    return KeysError(f"{path} is no {half} Ed25519 key in PEM ({error}): make one with `kvplan keys NAME --signing`")


def _envelope(data: bytes, name: str) -> _Envelope:
    try:
        version = msgspec.json.decode(data, type=_Version).format
        if version > FORMAT:
            raise PlanSignatureError(f"{name} has format {version}, this kvplan reads {FORMAT}: use a newer one")
        if version < FORMAT:
            raise PlanSignatureError(
                f"{name} was signed by an older kvplan, for any place: sign it again, with `kvplan push --prune` of a "
                "directory that has all its plans"
            )
        return msgspec.json.decode(data, type=_Envelope)
    except (msgspec.DecodeError, RecursionError) as error:
        raise PlanSignatureError(
            f"{name} is no signed index ({type(error).__name__}): `kvplan push` writes one"
        ) from error
