"""A router's requests to engines of vLLM: `kv_transfer_params` on both legs."""

from __future__ import annotations

from typing import Any

from kvplan.integrations.shared.legs import Body, EngineLegs, PairedRequest, WorkerAddress, only_first_token

PARAMS = "kv_transfer_params"


def prefill(body: Body, paired: PairedRequest) -> Body:
    """Return prefill's body: keep the prompt by the room, and offer it while it is computed."""
    said = {"do_remote_decode": True, "transfer_id": str(paired.room), "whole_prompt": paired.whole}
    return {**only_first_token(body), PARAMS: said}


def decode(body: Body, paired: PairedRequest, at: WorkerAddress) -> Body:
    """Return decode's body: load the prompt of the room from that worker's engine."""
    where = {"remote_host": at.host, "remote_port": at.port, "remote_key": at.key}
    return {**body, PARAMS: {"do_remote_prefill": True, "transfer_id": str(paired.room), **where}}


def address(answer: Any) -> WorkerAddress | None:
    """Return the address at which the engine of an answer holds the request; None if it holds nothing."""
    said = answer.get(PARAMS) or {}
    try:
        return WorkerAddress(str(said["remote_host"]), int(said["remote_port"]), str(said.get("remote_key") or ""))
    except (KeyError, TypeError, ValueError):
        return None


LEGS = EngineLegs(
    owner="vllm",
    fields=frozenset({PARAMS}),
    computes_last=True,
    tells_logprob=False,
    prefill=prefill,
    decode=decode,
    address=address,
)
