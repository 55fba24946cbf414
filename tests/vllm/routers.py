"""The two legs of a request as routers send them, field by field and header by header.

vLLM's toy proxy (tests/v1/kv_connector/nixl_integration/toy_proxy_server.py of vLLM 0.32; its own process does it where
the file can be had), llm-d's router (pkg/sidecar/proxy/connector_nixlv2.go, pkg/common/request/tokens.go) and its
sidecar of 2025 (llm-d-routing-sidecar, internal/proxy/connector_nixlv2.go).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.vllm.cases import Router
from tests.vllm.requests import REMOTE_DECODE
from tests.vllm.web import AUTHORIZATION, Body, post


@dataclass(frozen=True)
class Legs:
    """A router's requests for a client's body: one to prefill, and one to decode with prefill's answer."""

    prefill: Callable[[Body], Body]
    decode: Callable[[Body, Body], Body]


def toy_prefill(body: Body) -> Body:
    sent = {**body, "kv_transfer_params": REMOTE_DECODE, "stream": False, "max_tokens": 1}
    if "max_completion_tokens" in sent:
        sent["max_completion_tokens"] = 1
    return without(sent, "stream_options", "min_tokens", "min_completion_tokens")


def toy_decode(body: Body, answer: Body) -> Body:
    params = answer.get("kv_transfer_params", {})
    return {**body, "kv_transfer_params": params} if params else body


def llm_d_prefill(body: Body) -> Body:
    limits = ("max_tokens", "max_completion_tokens") if "messages" in body else ("max_tokens",)
    sent = {**body, "kv_transfer_params": REMOTE_DECODE, **dict.fromkeys(limits, 1), "stream": False}
    return without(sent, "stream_options", "min_tokens")


def llm_d_2025_prefill(body: Body) -> Body:
    return without({**body, "kv_transfer_params": REMOTE_DECODE, "stream": False, "max_tokens": 1}, "stream_options")


def llm_d_decode(body: Body, answer: Body) -> Body:
    """`null` where prefill said nothing."""
    return {**body, "kv_transfer_params": answer.get("kv_transfer_params")}


def without(body: Body, *names: str) -> Body:
    return {name: value for name, value in body.items() if name not in names}


LEGS: Mapping[Router, Legs] = {
    Router.TOY: Legs(toy_prefill, toy_decode),
    Router.LLM_D: Legs(llm_d_prefill, llm_d_decode),
    Router.LLM_D_2025: Legs(llm_d_2025_prefill, llm_d_decode),
}


def headers(request: str) -> Mapping[str, str]:
    return {**AUTHORIZATION, "X-Request-Id": request}


def prefilled(router: Router, port: int, path: str, body: Body) -> tuple[Body, Mapping[str, str]]:
    """Send the first leg; the second one's body and headers. Raises OSError, HttpError."""
    legs, named = LEGS[router], headers(str(uuid.uuid4()))
    return legs.decode(body, post(port, path, legs.prefill(body), named)), named
