"""A router's requests to engines of SGLang: by rooms. Decode gets the address of the first prefill worker."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from kvplan.integrations.shared.legs import Body, EngineLegs, Get, PairedRequest, WorkerAddress, host_and_port

HOST, PORT, ROOM, PARAMETERS = "bootstrap_host", "bootstrap_port", "bootstrap_room", "custom_params"
# Whether decode computes no token of a prompt: a key of the parameters that SGLang hands to plugins.
WHOLE_PROMPT = "whole_prompt"
SERVER_INFO, BOOTSTRAP_PORT, RECORD = "/server_info", "disaggregation_bootstrap_port", "/kvplan"


def prefill(body: Body, paired: PairedRequest) -> Body:
    """Return prefill's body: keep the prompt of the room for decode, and generate one token for any client's limit.

    kvplan's plugin leaves out the last token if decode computes that.
    """
    sent = {name: value for name, value in body.items() if name != "stream_options"}
    given = body.get(PARAMETERS)
    own = given if isinstance(given, dict) else {}
    return {**sent, "stream": False, ROOM: paired.room, PARAMETERS: {**own, WHOLE_PROMPT: paired.whole}}


def decode(body: Body, paired: PairedRequest, at: WorkerAddress) -> Body:
    """Return decode's body: receive the prompt of the room from that worker's engine."""
    key = f"{at.key.encode().hex()}@" if at.key else ""
    return {**body, HOST: f"tcp://{key}{at.host}", PORT: at.port, ROOM: paired.room}


def address(record: Any) -> WorkerAddress | None:
    """Return the address of a bootstrap record's first worker; None if it is no record."""
    try:
        return WorkerAddress(*host_and_port(str(record["address"])), str(record["key"]))
    except (KeyError, TypeError, ValueError):
        return None


async def record(url: str, get: Get) -> str:
    """Return the URL of an engine's record: its bootstrap service. Raises what `get` raises."""
    said = await get(url + SERVER_INFO)
    host = urlsplit(url).hostname or ""
    return f"http://{f'[{host}]' if ':' in host else host}:{said[BOOTSTRAP_PORT]}{RECORD}"


LEGS = EngineLegs(
    owner="sglang",
    fields=frozenset({HOST, PORT, ROOM, "disagg_prefill_dp_rank"}),
    computes_last=False,
    tells_logprob=True,
    prefill=prefill,
    decode=decode,
    address=address,
    record=record,
)
