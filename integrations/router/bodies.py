"""Bodies of requests and answers: routed parts of a client's body, and parts of prefill's answer for decode's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from kvplan.integrations.router.errors import BadBodyError
from kvplan.integrations.shared.legs import Body

# Fields that ask for several answers, or for logprobs of the prompt, which decode does not compute.
SINGLE = ("n", "best_of")
OF_THE_PROMPT = ("echo", "prompt_logprobs")
# Lists of an answer's logprobs, one entry per token: those of completions, and that of chats.
BY_TOKEN = ("tokens", "token_logprobs", "top_logprobs", "content")
DATA = b"data: "


def client_body(text: bytes, routing: Iterable[str]) -> Body:
    """Return a client's request without the `routing` fields. Raises BadBodyError if two engines cannot share it."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise BadBodyError(f"the body is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise BadBodyError(f"the body is an object, not a {type(body).__name__}")
    for name in SINGLE:
        if body.get(name) not in (None, 1):
            raise BadBodyError(f"{name} is {body[name]}: a request has one answer here, send it several times")
    for name in OF_THE_PROMPT:
        if _is_requested(body.get(name)):
            raise BadBodyError(f"{name} is not supported: decode does not compute the prompt")
    prompt = body.get("prompt")
    if isinstance(prompt, list) and any(isinstance(one, str | list) for one in prompt):
        raise BadBodyError("prompt is a list of prompts: send one request for each")
    return {name: value for name, value in body.items() if name not in set(routing)}


def wants_logprobs(body: Body) -> bool:
    """Whether a client asks for logprobs: a number in completions, which may be 0, and true in chats."""
    return _is_requested(body.get("logprobs"))


def _is_requested(value: object) -> bool:
    """Whether a field that may be false, or a number, asks for anything: 0 does."""
    return value is not None and value is not False


def with_first_token(decoded: Body, prefilled: Body) -> bool:
    """Put the first token's logprobs of prefill's answer into decode's. Return whether these had a place for them."""
    pairs = zip(_logprobs(decoded), _logprobs(prefilled), strict=False)
    found = [(said, known, name) for said, known in pairs for name in BY_TOKEN if said.get(name) and known.get(name)]
    for said, known, name in found:
        said[name][0] = known[name][0]
    return bool(found)


def event_with_first_token(event: bytes, prefilled: Body) -> bytes | None:
    """Return a server-sent event with the first token's logprobs; None if it has no logprobs."""
    if not event.startswith(DATA + b"{"):
        return None
    said = json.loads(event[len(DATA) :])
    return event_of(said) if with_first_token(said, prefilled) else None


def event_of(said: Mapping[str, Any]) -> bytes:
    return DATA + json.dumps(said).encode() + b"\n\n"


def _logprobs(answer: Body) -> list[dict[str, Any]]:
    return [choice.get("logprobs") or {} for choice in answer.get("choices") or ()]
