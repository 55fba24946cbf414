"""A connector's configuration by its user, read strictly: an unknown word is an error, not a default."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType

from kvplan.compiler.api import settled
from kvplan.compiler.errors import BadInput
from kvplan.compiler.side.text import nearest
from kvplan.fleet.etcd import PREFIX
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.runtime.control.addresses import is_loopback_host
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.decode.connecting import MODES
from kvplan.runtime.staging.buffers import STAGE_BYTES

# How early decode may have the computed part of a prompt.
OFFERS = ("layers", "steps", "end")
HOST = "127.0.0.1"
# The default port of the first worker if other machines may connect.
PORT = 7600
# The default place of the configuration, for errors.
PLACE = "kv_connector_extra_config"
# The environment variable that sets `strict` for a whole fleet.
STRICT = "KVPLAN_STRICT"
NONE: Mapping[str, str] = MappingProxyType({})
LONGEST = 1e6
# Seconds of a lease that ends neither with one counted pause (LONGEST_PAUSE) nor between two renewals of decode.
SHORTEST_LEASE = 3.0
BELOW = f"below {LONGEST:,.0f}"
LEASE = f"a number of seconds, {SHORTEST_LEASE:g} or more and {BELOW}: a second without a core counts against it"
# Keys of other connectors that have another name here, each with that name.
RENAMED = {"kv_lease_duration": "lease_s", "decoder_kv_blocks_ttl": "lease_s"}


@dataclass(frozen=True, slots=True)
class ConnectorConfig:
    """The user's configuration of the connector; times are seconds.

    `plans` is the plans directory. If `plans_url` is given, plans are pulled from there that `plans_key` signed for
    that URL, or for `plans_signed_for`. Without `plans`, plans are compiled on demand into a cache folder of this
    machine. `strict` requires a plans directory and keys: the engine compiles nothing, and answers no peer without a
    key. `layout` is a model's layout, by name or path, `layouts` the user's own directory, `engine` an engine's layout:
    found automatically without. `options` are options of the side's key that the engine does not report. `plan_options`
    are compile options, which also choose among several plans of one pair. `revision` identifies the weights, equal in
    engines that exchange caches, found automatically without. `keys` is a secret certificate or a folder with one.
    Without keys only engines of this machine connect, unless `insecure` is true. Prefill workers listen at `host` and
    at `port` plus their number, or each at a free port if `port` is 0. `peers` are the hosts and networks that a
    request may name for its prefill engine; empty allows any. A request is held for `lease_s`, and must arrive within
    `timeout_s`. Decode waits `hold_s` for a prefill engine that it has met to hold a request, and `connect` to meet
    one. `offer` says when computed parts of a prompt go to a decode engine that asked for it early. Each worker stages
    in `stage_bytes`; 0 disables stages. With `bidirectional_kv_xfer` an engine keeps loaded and generated caches for
    `lease_s`, and the next prefill of the conversation loads them: its `kv_role` is kv_both. With `fleet_url`, URLs of
    one etcd, the engine announces itself there under `fleet_prefix`; the files are for TLS.
    """

    plans: Path | None = None
    strict: bool = False
    plans_url: str = ""
    plans_key: Path | None = None
    plans_signed_for: str = ""
    layout: str = ""
    layouts: Path | None = None
    engine: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    plan_options: Mapping[str, str] = field(default_factory=dict)
    revision: str = ""
    mode: str = "auto"
    offer: str = "layers"
    keys: str = ""
    insecure: bool = False
    host: str = HOST
    port: int = 0
    peers: tuple[str, ...] = ()
    lease_s: float = 120.0
    timeout_s: float = 120.0
    hold_s: float = 10.0
    connect: float = 20.0
    stage_bytes: int = STAGE_BYTES
    bidirectional_kv_xfer: bool = False
    fleet_url: str = ""
    fleet_prefix: str = PREFIX
    fleet_ca: Path | None = None
    fleet_cert: Path | None = None
    fleet_cert_key: Path | None = None

    @property
    def loopback(self) -> bool:
        """Whether only engines of this machine may connect."""
        return not self.keys and not self.insecure

    def secrets(self) -> Keys | Plain:
        """Load the engine's keys. Raises KeysError."""
        return Keys.load(self.keys) if self.keys else Plain(self.loopback)

    def refuses(self, host: str) -> str:
        """Say why a request may not name this host for its prefill engine; empty if it may."""
        if self.loopback and not is_loopback_host(host):
            return f"host {host!r} is another machine, and there are no keys"
        return "" if allows(self.peers, host) else f"host {host!r} is none of peers"


def public_key(secrets: Keys | Plain) -> str:
    """Return the public key that peers must know; empty for an engine without keys."""
    return secrets.public.decode() if isinstance(secrets, Keys) else ""


def worker_address(host: str, port: int, worker: int) -> str:
    """Return a worker's address if the first worker listens at `port`; any free port (`*`) if that is 0."""
    return f"tcp://{host}:{port + worker if port else '*'}"


def read_config(
    given: Mapping[str, object],
    environment: Mapping[str, str] = os.environ,
    *,
    place: str = PLACE,
    unread: Mapping[str, str] = NONE,
    port: int = PORT,
) -> ConnectorConfig:
    """Read the configuration written at `place`.

    `unread` are the keys that this connector does not support, each with what to do instead; `port` is the default of
    its first worker if other machines may connect.

    Raises ConnectorError (I001, I002).
    """
    known = [each.name for each in fields(ConnectorConfig) if each.name not in unread]
    for name in given:
        if name not in known:
            help = unread.get(name) or nearest(RENAMED.get(name, str(name)), known)
            raise ConnectorError("I001", f"{place} has {name!r}", help)
    values: dict[str, object] = {name: READERS[name](f"{place}: {name}", value) for name, value in given.items()}
    values["strict"] = bool(values.get("strict")) or _strict_everywhere(environment)
    values.setdefault("port", 0 if is_loopback_host(str(values.get("host", HOST))) else port)
    config = ConnectorConfig(**values)  # type: ignore[arg-type]
    for wrong, what, help in _contradictions(config, given):
        if wrong:
            raise ConnectorError("I002", f"{place} {what}", help)
    return config


def _strict_everywhere(environment: Mapping[str, str]) -> bool:
    """Whether the environment makes every engine strict. Raises ConnectorError for an unknown word."""
    word = environment.get(STRICT, "")
    if word not in ("", "0", "1"):
        raise ConnectorError("I002", f"{STRICT} is {word!r}", "it is 1, or 0 or unset")
    return word == "1"


def _contradictions(config: ConnectorConfig, given: Collection[str]) -> Iterator[tuple[object, str, str]]:
    """Yield for each contradiction whether it is there, what it is, and what to do; `given` are the user's keys."""
    missing = [name for name in ("plans", "keys") if not getattr(config, name)]
    help = 'give "plans": the plans directory, and "keys": the folder with keys'
    help = f'{help}; or neither "strict": true nor {STRICT}=1'
    yield config.strict and missing, f"is strict and has no {' and no '.join(missing)}", help
    yield config.keys and config.insecure, "has both keys and insecure", "leave one of them out"
    hosts = (host for host in (config.host, *config.peers) if not (is_loopback_host(host) or _is_local(host)))
    beyond = next(hosts, "")
    yield config.loopback and beyond, f"has no keys, and {beyond} is not this machine's loopback", NO_KEYS
    help = 'give "plans_url" and "plans_key", the public key of who signs plans, or neither'
    yield bool(config.plans_url) != bool(config.plans_key), "has one of plans_url and plans_key", help
    help = 'give "plans": a directory into which they are pulled'
    yield config.plans_url and config.plans is None, "has plans_url and no plans", help
    help = "give it beside plans_url, if the plans there were signed for another place, or leave it out"
    yield config.plans_signed_for and not config.plans_url, "has plans_signed_for without plans_url", help
    more = config.fleet_ca or config.fleet_cert or config.fleet_cert_key or config.fleet_prefix != PREFIX
    help = 'give "fleet_url", http://host:2379, or leave the other keys of a fleet out'
    yield not config.fleet_url and more, "has keys of a fleet and no fleet_url", help
    help = 'give "fleet_cert" and "fleet_cert_key", or neither'
    yield bool(config.fleet_cert) != bool(config.fleet_cert_key), "has one of fleet_cert and fleet_cert_key", help
    what = f"has hold_s {config.hold_s:g}, and loads must end within timeout_s {config.timeout_s:g}"
    help = "give a hold_s of at most timeout_s, or raise timeout_s"
    yield "hold_s" in given and config.hold_s > config.timeout_s, what, help


NO_KEYS = (
    "make keys, on this machine with `kvplan keys THIS -o keys`, on the other with `kvplan keys OTHER -o keys`; copy "
    'each NAME.key, and no NAME.key_secret, into the other\'s folder, and give both engines "keys": "keys". '
    'Or say "insecure": true, which lets in anybody who reaches the port'
)


def _text(name: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise _wrong_value(name, value, "a text")


def _url(name: str, value: object) -> str:
    """Read URLs. Refuse credentials in them, because errors would show them."""
    if isinstance(value, str) and "@" in value:
        raise ConnectorError("I002", f"{name} has a user or a password", "give certificates")
    return _text(name, value)


def _prefix(name: str, value: object) -> str:
    if isinstance(value, str) and value.endswith("/"):
        return value
    raise _wrong_value(name, value, f"a prefix that ends with /, as {PREFIX}")


def _path(name: str, value: object) -> Path:
    return Path(_text(name, value))


def _truth(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise _no_text(name, value, "true or false")


def _one_of(words: tuple[str, ...]) -> Callable[[str, object], str]:
    def read(name: str, value: object) -> str:
        if value in words:
            return str(value)
        raise _wrong_value(name, value, " or ".join(words))

    return read


def allows(peers: tuple[str, ...], host: str) -> bool:
    """Whether `peers` allow a host, by name or as an address of one of their networks; empty `peers` allow any."""
    if not peers or host in peers:
        return True
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return any(address in network for network in map(_network, peers) if network is not None)


def _network(word: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return the network written as `10.0.0.0/8`, None for a name."""
    try:
        return ipaddress.ip_network(word)
    except ValueError:
        return None


def _is_local(word: str) -> bool:
    """Whether a network has only loopback addresses."""
    network = _network(word)
    return network is not None and network.is_loopback


def _hosts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not value or not all(isinstance(host, str) and host for host in value):
        raise _wrong_value(name, value, "a list of hosts, addresses and networks")
    for host in value:
        if "/" in host and _network(host) is None:
            raise _wrong_value(name, host, "a network without bits behind its prefix, as 10.0.0.0/8")
    return tuple(value)


def _number(wanted: str, least: float, end: float) -> Callable[[str, object], float]:
    """Return the reader of numbers from `least` to below `end`: whole ones if both are ints, otherwise as floats."""
    kind = int if isinstance(end, int) else float

    def read(name: str, value: object) -> float:
        if isinstance(value, int | kind) and not isinstance(value, bool) and least <= value < end:
            return kind(value)
        raise _no_text(name, value, wanted)

    return read


def _options(name: str, value: object) -> Mapping[str, str]:
    if isinstance(value, Mapping) and all(isinstance(word, str) for word in value):
        return {word: _as_written(each) for word, each in value.items()}
    raise _wrong_value(name, value, "options of a side by name")


def _plan_options(name: str, value: object) -> Mapping[str, str]:
    """Read options of `kvplan compile` by name. Raises ConnectorError for an unknown one."""
    if not isinstance(value, Mapping) or not all(isinstance(each, str) and each for each in value.values()):
        raise _wrong_value(name, value, "options of kvplan compile by name, each a text")
    try:
        settled(value)
    except BadInput as error:
        what = f"{name}: {error.message}"
        raise ConnectorError("I002", what, error.help) from error
    return dict(value)


def _as_written(value: object) -> str:
    """Return a value as a side's key writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wrong_value(name: str, value: object, wanted: str) -> ConnectorError:
    return ConnectorError("I002", f"{name} is {value!r}", f"it is {wanted}")


def _no_text(name: str, value: object, wanted: str) -> ConnectorError:
    """Return the error for a value that JSON writes without quotation marks."""
    return _wrong_value(name, value, wanted + ", without quotation marks" * isinstance(value, str))


# Readers by a field's type, but for fields with one of their own.
BY_TYPE = {
    "str": _text,
    "Path | None": _path,
    "bool": _truth,
    "float": _number(f"a number of seconds above 0 and {BELOW}", 1e-9, LONGEST),
}
READERS: Mapping[str, Callable[[str, object], object]] = {
    **{each.name: BY_TYPE[str(each.type)] for each in fields(ConnectorConfig) if str(each.type) in BY_TYPE},
    "options": _options,
    "plan_options": _plan_options,
    "mode": _one_of(MODES),
    "offer": _one_of(OFFERS),
    "port": _number("a port, 1 to 65535", 1, 65536),
    "peers": _hosts,
    "lease_s": _number(LEASE, SHORTEST_LEASE, LONGEST),
    "stage_bytes": _number("bytes, 0 or more", 0, 1 << 40),
    "fleet_url": _url,
    "fleet_prefix": _prefix,
}
