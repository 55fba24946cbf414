"""The connector's settings for SGLang, the address of prefill, and whether SGLang was started with kvplan."""

from __future__ import annotations

import http.client
import json
import math
import socket
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import zmq

from kvplan.integrations.sglang import bootstrap, plugin
from kvplan.integrations.sglang.bootstrap import LARGEST, MOST, PATH, PROOF, Bootstrap, PrefillRecord, lookup, register
from kvplan.integrations.sglang.setup import PLACE, given_config
from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.runtime.control.keys import Keys, Plain
from kvplan.runtime.errors import HandshakeError

RECORD = PrefillRecord("tcp://127.0.0.1:4711", "key")
OPEN = Plain(True)


def test_nothing_is_needed_on_one_machine() -> None:
    assert given_config({}) == ConnectorConfig()


def test_the_configuration_is_json_or_a_file_of_it(tmp_path: Path) -> None:
    text = json.dumps({"plans": "plans", "revision": "v1"})
    (tmp_path / "kvplan.json").write_text(text)
    given = [given_config({PLACE: text}), given_config({PLACE: str(tmp_path / "kvplan.json")})]
    assert given[0] == given[1]
    assert (given[0].plans, given[0].revision) == (Path("plans"), "v1")


@pytest.mark.parametrize(("key", "help"), [("hold_s", "timeout_s"), ("fleet_url", "router"), ("leese_s", "'lease_s'")])
def test_a_key_of_another_connector_is_answered_with_what_to_do(key: str, help: str) -> None:
    with pytest.raises(ConnectorError) as error:
        given_config({PLACE: json.dumps({key: 1})})
    assert help in error.value.help


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ('{"plan": "x"}', "I001", "KVPLAN_CONFIG has 'plan'"),
        ('{"bidirectional_kv_xfer": true}', "I001", "KVPLAN_CONFIG has 'bidirectional_kv_xfer'"),
        ('{"strict": true}', "I002", "KVPLAN_CONFIG is strict and has no plans and no keys"),
        ('{"lease_s": "x"}', "I002", "KVPLAN_CONFIG: lease_s is 'x'"),
        ('{"host": "10.0.0.1"}', "I002", "KVPLAN_CONFIG has no keys, and 10.0.0.1 is not this machine's loopback"),
        ("{", "I002", "KVPLAN_CONFIG is no JSON"),
        ("/none.json", "I002", "KVPLAN_CONFIG is '/none.json', neither an object nor a file that can be read: No such"),
        ("[1]", "I002", "KVPLAN_CONFIG is '[1]', neither an object nor a file that can be read: No such file"),
        ("/", "I002", "KVPLAN_CONFIG is '/', neither an object nor a file that can be read: Is a directory"),
    ],
)
def test_what_nobody_reads_or_cannot_be_stops_the_engine(text: str, code: str, what: str) -> None:
    with pytest.raises(ConnectorError) as error:
        given_config({PLACE: text})
    assert (error.value.code, error.value.message[: len(what)]) == (code, what)


def test_a_file_without_an_object_stops_the_engine(tmp_path: Path) -> None:
    for data, what in ((b"[1]", "KVPLAN_CONFIG is no object"), (b"\xff", "it is no UTF-8 text")):
        (tmp_path / "kvplan.json").write_bytes(data)
        with pytest.raises(ConnectorError, match=f"I002.*{what}"):
            given_config({PLACE: str(tmp_path / "kvplan.json")})


def test_strict_is_said_for_a_whole_fleet() -> None:
    with pytest.raises(ConnectorError, match="KVPLAN_CONFIG is strict"):
        given_config({"KVPLAN_STRICT": "1"})


@pytest.fixture
def service() -> Iterator[Bootstrap]:
    with closing(Bootstrap("127.0.0.1", 0, OPEN)) as made:
        yield made


def test_decode_learns_where_prefill_answers(service: Bootstrap) -> None:
    where = f"127.0.0.1:{service.port}"
    with pytest.raises(HandshakeError, match=rf"no prefill engine with kvplan answers at {where} within 0.3 s"):
        lookup(where, 0.3)
    register(where, RECORD, 5, OPEN)
    assert lookup(where, 5) == RECORD
    register(where, PrefillRecord("tcp://127.0.0.1:9"), 5, OPEN)
    assert lookup(where, 5).address == "tcp://127.0.0.1:9", "an engine that was restarted answers elsewhere"


def pair_of_keys() -> Keys:
    public, secret = zmq.curve_keypair()
    return Keys(public, secret)


def test_a_record_needs_a_proof_by_the_engine_s_keys() -> None:
    ours = pair_of_keys()
    with closing(Bootstrap("127.0.0.1", 0, ours)) as service:
        where = f"127.0.0.1:{service.port}"
        register(where, RECORD, 5, Keys(ours.public, ours.secret))
        other = PrefillRecord("tcp://127.0.0.1:666", RECORD.key)
        for keys in (OPEN, pair_of_keys()):
            with pytest.raises(HandshakeError, match="or of other keys: start one engine at this port"):
                register(where, other, 5, keys)
        for proof in ("", "\xff", "0" * 64):
            with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=5)) as connection:
                connection.request("PUT", PATH, json.dumps(asdict(other)), {PROOF: proof})
                assert connection.getresponse().status == 403
        assert lookup(where, 5) == RECORD


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"address": 1, "key": ""}', b"x" * (LARGEST + 1)])
def test_what_is_no_record_is_not_kept(service: Bootstrap, body: bytes) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=5)) as connection:
        kept = body if len(body) <= LARGEST else b""
        connection.request("PUT", PATH, body, {PROOF: bootstrap.proof(OPEN, kept)})
        assert connection.getresponse().status == 400
    with pytest.raises(HandshakeError):
        lookup(f"127.0.0.1:{service.port}", 0.2)


def test_a_record_of_another_machine_is_refused(service: Bootstrap) -> None:
    """127.0.0.2 is this machine, too, but no process connects from it by default."""
    where = f"127.0.0.1:{service.port}"
    register(where, RECORD, 5, OPEN)
    with closing(http.client.HTTPConnection("127.0.0.1", service.port, 5, ("127.0.0.2", 0))) as connection:
        connection.request("PUT", PATH, json.dumps({"address": "tcp://10.0.0.9:1", "key": ""}))
        assert connection.getresponse().status == 403
    assert lookup(where, 5) == RECORD


def test_connections_beyond_a_number_are_closed_and_others_answered_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bootstrap, "REQUEST_S", 120)
    with ExitStack() as stack, closing(Bootstrap("127.0.0.1", 0, OPEN)) as service:
        where = f"127.0.0.1:{service.port}"
        register(where, RECORD, 5, OPEN)
        for _ in range(MOST):
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", service.port), 5)))
        with pytest.raises(HandshakeError):
            lookup(where, 1)
        stack.close()
        assert lookup(where, 20) == RECORD


def test_a_service_that_is_not_there_is_waited_for_no_longer_than_told() -> None:
    with pytest.raises(HandshakeError, match=r"no bootstrap service takes it at 127\.0\.0\.1:1 within 0\.2 s: "):
        register("127.0.0.1:1", RECORD, 0.2, OPEN)


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["serve", "--disaggregation-transfer-backend", "kvplan"], True),
        (["serve", "--disaggregation-transfer-backend=kvplan"], True),
        (["serve", "--disaggregation-transfer-backend", "nixl", "kvplan"], False),
        (["serve", "kvplan"], False),
    ],
)
def test_only_an_engine_that_is_asked_for_kvplan_is_stopped(
    words: list[str], asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a release without the hooks, SGLang would log the plugin's error and call the choice invalid."""
    monkeypatch.setattr("sys.argv", words)
    monkeypatch.setitem(__import__("sys").modules, "sglang", ModuleType("sglang"))
    if asked:
        with pytest.raises(SystemExit, match="this release of SGLang lacks a hook that kvplan needs"):
            plugin.install()
    else:
        plugin.install()


def test_pages_of_a_failed_request_are_kept_until_nothing_writes_to_them() -> None:
    """SGLang frees them after 30 s, which proves nothing."""
    transfers = SimpleNamespace(enable_deferred_kv_release=False, deferred_kv_release_timeout=30.0)
    queue, told = SimpleNamespace(transfer_queue=transfers, scheduler=SimpleNamespace(forward_stream=7)), list[object]()
    req = SimpleNamespace(origin_input_ids=[1, 2])
    plugin.receiver_created(SimpleNamespace(kv_receiver=SimpleNamespace()), queue, req)
    assert transfers.deferred_kv_release_timeout == 30.0, "another backend's receiver"
    ours = SimpleNamespace(tell_prompt=lambda ids, salt: told.append((ids, salt)))
    plugin.receiver_created(SimpleNamespace(kv_receiver=ours), queue, req)
    assert (transfers.enable_deferred_kv_release, transfers.deferred_kv_release_timeout) == (True, math.inf)
    assert (told, ours.forwards) == ([([1, 2], "")], 7)
    with pytest.raises(ConnectorError, match="I011"):
        plugin.receiver_created(
            SimpleNamespace(kv_receiver=ours), SimpleNamespace(transfer_queue=transfers, scheduler=object()), req
        )
    with pytest.raises(ConnectorError, match="I011"):
        plugin.keep_until_settled(SimpleNamespace())


class Prefilled:
    """A request of SGLang's, as a prefill engine has it when its sender is made."""

    def __init__(self, tokens: int, custom: object) -> None:
        self.origin_input_ids, self.logprob_start_len = array("q", range(tokens)), tokens
        self.sampling_params = SimpleNamespace(custom_params=custom)
        self.told: list[object] = []
        self.disagg_kv_sender: object = SimpleNamespace(
            tell_prompt=lambda ids, salt: self.told.append(list(ids)), tell_length=self.told.append
        )


@pytest.mark.parametrize(
    ("tokens", "custom", "left"),
    [
        (3, {"whole_prompt": False}, 2),
        (1, {"whole_prompt": False}, 1),
        (3, {"whole_prompt": True}, 3),
        (3, {}, 3),
        (3, None, 3),
    ],
)
def test_prefill_leaves_out_the_token_that_decode_computes(tokens: int, custom: object, left: int) -> None:
    """The request keeps the name of its whole prompt, by which decode asks for it."""
    req = Prefilled(tokens, custom)
    plugin.sender_created(True, object(), req)
    assert (list(req.origin_input_ids), req.logprob_start_len) == ([*range(left)], left)
    assert req.told == [[*range(tokens)], *([left] if left < tokens else [])]


def test_a_request_of_another_backend_stays_whole() -> None:
    req = Prefilled(3, {"whole_prompt": False})
    req.disagg_kv_sender = SimpleNamespace()
    plugin.sender_created(True, object(), req)
    assert len(req.origin_input_ids) == 3


REGISTERED = """
import sys
from unittest.mock import MagicMock
from kvplan.integrations.sglang import plugin
from kvplan.integrations.sglang.states import RoomState

sglang = MagicMock()
for state, number in zip(plugin.STATES, RoomState):
    setattr(sglang.KVPoll, state, number)
sglang.utils.TransferBackend._value2member_map_ = {plugin.NAME: None}
for name in ("arg_groups.choices", "disaggregation", "disaggregation.base.conn", "plugins.hook_registry"):
    sys.modules[f"sglang.srt.{name}"] = sglang
plugin.install()
print(sglang.HookRegistry.register.call_count, "numpy" in sys.modules)
"""


def test_a_process_that_registers_the_plugin_loads_no_runtime() -> None:
    """Every SGLang process registers it, whether or not it uses kvplan."""
    done = subprocess.run([sys.executable, "-c", REGISTERED], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "3 False\n", done.stderr
