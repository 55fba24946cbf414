"""kv_connector_extra_config: what is read, and that nothing unknown passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvplan.integrations.shared.config import ConnectorConfig, read_config
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.runtime import Keys, Plain

LEAST = {"plans": "plans", "insecure": True}


def test_nothing_has_to_be_said_on_one_machine() -> None:
    config = read_config({}, {})
    assert config == ConnectorConfig()
    assert config.secrets() == Plain(loopback=True)
    assert (config.plans, config.host, config.port) == (None, "127.0.0.1", 0)


@pytest.mark.parametrize(("host", "port"), [("127.0.0.2", 0), ("localhost", 0), ("[::1]", 0), ("10.0.0.1", 7600)])
def test_a_port_is_chosen_where_only_this_machine_connects(host: str, port: int) -> None:
    assert read_config({"insecure": True, "host": host}).port == port
    assert read_config({"insecure": True, "host": host, "port": 7000}).port == 7000


@pytest.mark.parametrize(
    "beyond", [{"host": "10.0.0.1"}, {"host": "0.0.0.0"}, {"host": "prefill-0"}, {"peers": ["127.0.0.1", "10.0.0.0/8"]}]
)
def test_beyond_this_machine_the_commands_that_make_keys_are_told(beyond: dict[str, Any]) -> None:
    with pytest.raises(ConnectorError, match=r"I002: .*no keys.*not this machine's loopback") as caught:
        read_config(beyond)
    assert caught.value.help.count("kvplan keys ") == 2
    assert read_config({**beyond, "insecure": True}).secrets() == Plain()


@pytest.mark.parametrize(
    ("host", "why"), [("127.0.0.1", ""), ("localhost", ""), ("10.0.0.1", "no keys"), ("prefill-0", "no keys")]
)
def test_a_request_cannot_name_another_machine_to_an_engine_without_keys(host: str, why: str) -> None:
    refused = read_config({"peers": ["localhost", "127.0.0.0/8"]} if "." in host else {}).refuses(host)
    assert why in refused
    assert bool(why) == bool(refused)
    assert not read_config({"insecure": True}).refuses(host)
    assert not read_config({"keys": "keys"}).refuses(host)


STRICT = {"strict": True, "plans": "plans", "keys": "keys"}


def test_strict_asks_for_plans_and_keys() -> None:
    assert read_config(STRICT, {}).strict
    assert read_config({"plans": "plans", "keys": "keys"}, {"KVPLAN_STRICT": "1"}) == read_config(STRICT, {})
    assert not read_config({}, {"KVPLAN_STRICT": "0"}).strict


@pytest.mark.parametrize("missing", [["plans"], ["keys"], ["plans", "keys"]])
@pytest.mark.parametrize("more", [{}, {"insecure": True}])
def test_strict_names_what_is_missing(missing: list[str], more: dict[str, Any]) -> None:
    given = {name: value for name, value in STRICT.items() if name not in missing} | more
    with pytest.raises(ConnectorError, match=" and ".join(f"no {name}" for name in missing)):
        read_config(given)


def test_one_word_of_a_fleet_cannot_be_taken_back_by_an_engine() -> None:
    for word in ("1", "true"):
        with pytest.raises(ConnectorError, match=r"I002.*(strict|KVPLAN_STRICT)"):
            read_config({"strict": False}, {"KVPLAN_STRICT": word})


def test_keys_are_loaded(tmp_path: Path) -> None:
    for name in ("one", "other"):
        Keys.make(tmp_path / name, name)
    (tmp_path / "other" / "other.key").rename(tmp_path / "one" / "other.key")
    secrets = read_config({"plans": "plans", "keys": str(tmp_path / "one")}).secrets()
    assert isinstance(secrets, Keys)


def test_every_key_is_read() -> None:
    given = {
        **LEAST,
        "layout": "m.yaml",
        "layouts": "own",
        "engine": "e",
        "options": {"isa": "AMX", "block": 16, "flag": True},
        "plan_options": {"strategy": "auto", "machine": "ours"},
        "revision": "9f2e1c7",
        "mode": "push",
        "strict": False,
        "host": "10.0.0.1",
        "port": 7000,
        "peers": ["10.0.0.2", "prefill", "10.1.0.0/16"],
        "lease_s": 3,
        "timeout_s": 4.5,
        "hold_s": 2,
        "connect": 1,
        "stage_bytes": 0,
        "fleet_url": "https://etcd-0:2379,https://etcd-1:2379",
        "fleet_prefix": "/mine/",
        "fleet_ca": "ca.pem",
        "fleet_cert": "cert.pem",
        "fleet_cert_key": "key.pem",
    }
    config = read_config(given)
    assert config.peers == ("10.0.0.2", "prefill", "10.1.0.0/16")
    assert config.hold_s == 2.0
    assert (config.fleet_prefix, config.fleet_cert_key) == ("/mine/", Path("key.pem"))
    assert config.stage_bytes == 0
    assert config.plan_options == {"strategy": "auto", "machine": "ours"}
    assert config.options == {"isa": "AMX", "block": "16", "flag": "true"}
    assert (config.layouts, config.lease_s, config.timeout_s, config.connect) == (Path("own"), 3.0, 4.5, 1.0)


def test_an_unknown_key_is_named_with_the_nearest_one() -> None:
    with pytest.raises(ConnectorError, match=r"I001: .*'plan'.*did you mean 'plans'") as caught:
        read_config({**LEAST, "plan": "x"})
    assert caught.value.code == "I001"


@pytest.mark.parametrize("key", ["kv_lease_duration", "decoder_kv_blocks_ttl"])
def test_a_key_of_vllm_s_own_connector_is_answered_with_the_one_here(key: str) -> None:
    with pytest.raises(ConnectorError, match=f"I001: .*'{key}'.*did you mean 'lease_s'"):
        read_config({key: 30})


@pytest.mark.parametrize(("key", "value"), [("lease_s", "60"), ("port", "7600"), ("insecure", "true")])
def test_a_quoted_value_is_answered_with_its_quotation_marks(key: str, value: str) -> None:
    with pytest.raises(ConnectorError, match=f"I002: .*{key} is '{value}'.*without quotation marks"):
        read_config({key: value})


@pytest.mark.parametrize("value", [True, 2, 1e6])
def test_a_lease_that_is_no_number_or_too_short_is_told_what_it_is(value: object) -> None:
    with pytest.raises(ConnectorError, match="it is a number of seconds, 3 or more and below 1,000,000: ") as caught:
        read_config({"lease_s": value})
    assert "quotation" not in str(caught.value)


def test_a_hold_is_not_waited_for_longer_than_for_the_whole_load() -> None:
    with pytest.raises(ConnectorError, match=r"I002: .*hold_s 300.*timeout_s 120"):
        read_config({"hold_s": 300})
    assert read_config({"timeout_s": 5}).timeout_s == read_config({"timeout_s": 5, "hold_s": 5}).hold_s == 5.0


@pytest.mark.parametrize(
    "more",
    [
        {"plans": ""},
        {"plans": 3},
        {"insecure": "yes"},
        {"plans_url": "s3://bucket/plans"},
        {"plans_key": "team.sign.pub"},
        {"strict": 1},
        {"plans_signed_for": "s3://bucket/plans"},
        {"keys": "k"},
        {"mode": "shove"},
        {"port": 0},
        {"peers": "10.0.0.2"},
        {"peers": []},
        {"peers": [""]},
        {"peers": ["10.0.0.1/8"]},
        {"peers": ["prefill/8"]},
        {"hold_s": 0},
        {"stage_bytes": -1},
        {"stage_bytes": True},
        {"stage_bytes": 1.5},
        {"port": True},
        {"lease_s": 0},
        {"lease_s": 1.5},
        {"lease_s": 10**400},
        {"lease_s": "30"},
        {"timeout_s": "10"},
        {"options": ["isa"]},
        {"plan_options": ["strategy"]},
        {"plan_options": {"strategy": True}},
        {"plan_options": {"strategy": "fast"}},
        {"plan_options": {"stratgy": "auto"}},
        {"plan_options": {"strategy": "auto", "machine": ""}},
        {"plan_options": {"machine": "ours"}},
        {"fleet_url": ""},
        {"fleet_url": ["http://etcd:2379"]},
        {"fleet_url": "http://etcd:2379", "fleet_prefix": "/mine"},
        {"fleet_url": "http://etcd:2379", "fleet_cert": "cert.pem"},
        {"fleet_prefix": "/mine/"},
        {"fleet_ca": "ca.pem"},
    ],
)
def test_values_that_cannot_be(more: dict[str, Any]) -> None:
    with pytest.raises(ConnectorError) as caught:
        read_config({**LEAST, **more})
    assert caught.value.code == "I002"


def test_credentials_are_not_shown() -> None:
    with pytest.raises(ConnectorError, match=r"I002: .*fleet_url has a user or a password") as caught:
        read_config({**LEAST, "fleet_url": "http://me:secret@etcd:2379"})
    assert "secret" not in f"{caught.value}{caught.value.help}"


def test_plans_are_pulled_into_a_directory() -> None:
    with pytest.raises(ConnectorError, match=r"I002: .*plans_url and no plans"):
        read_config({"plans_url": "s3://bucket/plans", "plans_key": "team.sign.pub"})
