"""Bodies that a router changes: the first token's logprobs, and what is left as it is."""

from __future__ import annotations

from typing import Any

import pytest

from kvplan.integrations.router.bodies import event_with_first_token, with_first_token
from kvplan.integrations.router.engines import known_legs
from kvplan.integrations.sglang.bootstrap import PrefillRecord, named_worker
from kvplan.integrations.sglang.legs import address, decode
from kvplan.integrations.shared.legs import PairedRequest, WorkerAddress, only_first_token

KNOWN = {"choices": [{"logprobs": {"token_logprobs": [-0.5], "tokens": ["a"]}}]}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"choices": []},
        {"choices": [{}]},
        {"choices": [{"logprobs": None}]},
        {"choices": [{"logprobs": {"token_logprobs": []}}]},
        {"choices": [{"logprobs": {"content": None}}]},
    ],
)
def test_an_answer_without_logprobs_stays_as_it_is(answer: Any) -> None:
    before = repr(answer)
    assert not with_first_token(answer, KNOWN)
    assert repr(answer) == before


@pytest.mark.parametrize("event", [b"data: [DONE]\n\n", b": a comment\n\n", b'data: {"choices": []}\n\n', b"\n\n"])
def test_an_event_without_logprobs_stays_as_it_is(event: bytes) -> None:
    assert event_with_first_token(event, KNOWN) is None


def test_one_token_is_asked_for_whatever_the_client_s_words() -> None:
    assert only_first_token({"prompt": "a"}) == {"prompt": "a", "max_tokens": 1, "stream": False}
    chat = only_first_token({"max_completion_tokens": 9, "min_tokens": 0, "stream": True, "stream_options": {}})
    assert chat == {"max_completion_tokens": 1, "max_tokens": 1, "min_tokens": 0, "stream": False}


def test_both_connectors_have_legs() -> None:
    assert sorted(known_legs()) == ["sglang", "vllm"]


@pytest.mark.parametrize("key", ["", "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"])
@pytest.mark.parametrize("host", ["127.0.0.1", "prefill-0", "[::1]"])
def test_a_decode_engine_reads_the_address_that_a_router_gives(host: str, key: str) -> None:
    """Keys may have an @, a colon and a slash in them."""
    said = decode({}, PairedRequest(5, whole=True), WorkerAddress(host, 7600, key))
    where = f"{said['bootstrap_host']}:{said['bootstrap_port']}"
    assert named_worker(where) == PrefillRecord(f"tcp://{host}:7600", key)


@pytest.mark.parametrize("record", [None, {}, {"address": 5, "key": ""}, {"address": "tcp://h", "key": ""}, []])
def test_a_record_that_is_none_has_no_address(record: Any) -> None:
    assert address(record) is None
