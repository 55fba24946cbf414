"""Cases over HTTP: what clients ask of a router in front of two `vllm serve`, against decode asked alone.

Metrics are looked at before and after: loads, and requests that nobody fetched, are as many as were asked for.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from tests.vllm.cases import Call, Case, Router, Served
from tests.vllm.judge import Answer, Outcome, Verdict, judge
from tests.vllm.models import word
from tests.vllm.process import EngineLost, Launcher, Word, wait_until
from tests.vllm.requests import MEETINGS, WORDS
from tests.vllm.routers import LEGS, headers, prefilled
from tests.vllm.servers import USAGE, ServedPair, Server
from tests.vllm.web import Body, HttpError, leave, post, stream

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
LENGTH, TOKENS, LONG, LONGEST = 200, 16, 700, 1024
TIMES, BYTES = "vllm:kvplan_load_time_seconds", "vllm:kvplan_loaded_bytes"
FAILED, EXPIRED = "vllm:kvplan_num_failed_loads_total", "vllm:kvplan_num_expired_reqs_total"
HELD = "vllm:kvplan_held_requests"
SALTS = itertools.count()


@dataclass
class Counts:
    """Expected counts of metrics: loads on decode, expired requests on prefill, and those that may be either.

    A client that leaves may do so before prefill holds anything, or decode has asked for it.
    """

    loads: int = 0
    expired: int = 0
    perhaps: int = 0


def run_cases(launcher: Launcher, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
    """Cases of one setup, on the same servers."""
    try:
        with ServedPair(launcher, cases[0].setup) as pair:
            meet(pair)
            for case in cases:
                yield case, run(pair, case)
    except EngineLost as error:
        yield from ((case, Outcome(stopped=f"did not start: {str(error).splitlines()[-1][:200]}")) for case in cases)


def meet(pair: ServedPair) -> None:
    """First requests, which no case counts: both sides may compile their plan for longer than meeting may take."""
    client = Client(pair, Router.LLM_D)
    for _ in range(MEETINGS):
        with suppress(HttpError):
            client.ask(COMPLETIONS, client.completion())
            break
    client.leaked()


def run(pair: ServedPair, case: Case) -> Outcome:
    assert isinstance(case.play, Served)
    client, answers = Client(pair, case.play.router), list[Answer]()
    before = client.metrics()
    try:
        for call in case.play.calls:
            answers += CALLS[call](client)
        answers += [Answer(Verdict.WRONG, note=note) for note in client.unlike(before)]
        return Outcome(answers, leaked=client.leaked())
    except (OSError, HTTPException, HttpError) as error:
        return Outcome(answers, stopped=f"{type(error).__name__}: {error}")


class Client:
    """A client that asks through a router, or asks decode alone."""

    def __init__(self, pair: ServedPair, router: Router) -> None:
        self.pair, self.router, self.counts = pair, router, Counts()
        self.random = random.Random(f"{router} {next(SALTS)}")

    def prompt(self) -> list[int]:
        return self.random.choices(WORDS, k=LENGTH)

    def completion(self, tokens: int = TOKENS, **more: Any) -> Body:
        return {**self._common(more), "prompt": self.prompt(), "max_tokens": tokens, "logprobs": 1}

    def chat(self, **more: Any) -> Body:
        said = [{"role": "user", "content": " ".join(map(word, self.prompt()))}]
        logprobs = {"logprobs": True, "top_logprobs": 1}
        return {**self._common(more), "messages": said, "max_completion_tokens": TOKENS, **logprobs}

    def _common(self, more: Mapping[str, Any]) -> Body:
        common = {"model": self.pair.model, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
        return {**common, "cache_salt": f"asked {next(SALTS)}", **more}

    def ask(self, path: str, body: Body) -> Body:
        """An answer that comes whole, through the router."""
        if (proxy := self._proxy()) is not None:
            return post(proxy.port, path, body)
        second, named = prefilled(self.router, self.pair.prefill.port, path, body)
        return post(self.pair.decode.port, path, second, named)

    def listen(self, path: str, body: Body) -> Iterator[Body]:
        """An answer's events, through the router."""
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        if (proxy := self._proxy()) is not None:
            return stream(proxy.port, path, asked)
        second, named = prefilled(self.router, self.pair.prefill.port, path, asked)
        return stream(self.pair.decode.port, path, second, named)

    def alone(self, path: str, body: Body) -> Body:
        """The oracle: decode, asked by itself, with a salt of its own."""
        return post(self.pair.decode.port, path, {**body, "cache_salt": f"alone {next(SALTS)}"})

    def leave(self, path: str, body: Body) -> None:
        """Ask and leave at once; without a proxy, leave prefill like a router whose client has left."""
        proxy = self._proxy()
        if proxy is not None:
            leave(proxy.port, path, body)
        else:
            leave(self.pair.prefill.port, path, LEGS[self.router].prefill(body))

    def hold(self, path: str, body: Body) -> None:
        """Only the first leg."""
        post(self.pair.prefill.port, path, LEGS[self.router].prefill(body), headers(f"held {next(SALTS)}"))

    def metrics(self) -> Mapping[str, Mapping[str, float]]:
        """The metrics of both servers, each after one more step, because values are those of the last step."""
        for server in self._servers().values():
            self._step(server)
        return {side: server.metrics() for side, server in self._servers().items()}

    def unlike(self, before: Mapping[str, Mapping[str, float]]) -> list[str]:
        """The metrics that differ from the expected ones, once nothing is held any more."""
        wait_until(lambda: not self._wrong(before), 3.0 * self.pair.setup.lease_s)
        return self._wrong(before)

    def _wrong(self, before: Mapping[str, Mapping[str, float]]) -> list[str]:
        after, counts = self.metrics(), self.counts
        loads = more(before, after, "decode", f"{TIMES}_count")
        expired = more(before, after, "prefill", EXPIRED)
        facts = {
            f"{loads:g} loads, wanted {counts.loads}": counts.loads <= loads <= counts.loads + counts.perhaps,
            f"{expired:g} expired, wanted {counts.expired}": counts.expired
            <= expired
            <= counts.expired + counts.perhaps,
            "loads have no time": not loads or more(before, after, "decode", f"{TIMES}_sum") > 0,
            "loads have no bytes": not loads or more(before, after, "decode", f"{BYTES}_sum") > 0,
            "as many byte counts as loads": loads == more(before, after, "decode", f"{BYTES}_count"),
            "loads failed": more(before, after, "decode", FAILED) == 0,
            "requests stay held": after["prefill"][HELD] == 0,
        }
        return [text for text, holds in facts.items() if not holds]

    def leaked(self) -> str:
        """The sides that have blocks in use though nothing is asked of them."""
        wait_until(lambda: not self._in_use(), 3.0 * self.pair.setup.lease_s)
        return ", ".join(f"blocks leaked on {side}" for side in self._in_use())

    def _in_use(self) -> list[str]:
        return [side for side, values in self.metrics().items() if values[USAGE] > 0]

    def _proxy(self) -> Server | None:
        return self.pair.proxy if self.router is Router.TOY else None

    def _servers(self) -> Mapping[str, Server]:
        return {"prefill": self.pair.prefill, "decode": self.pair.decode}

    def _step(self, server: Server) -> None:
        post(server.port, COMPLETIONS, {"model": self.pair.model, "prompt": self.prompt()[:5], "max_tokens": 2})


def more(
    before: Mapping[str, Mapping[str, float]], after: Mapping[str, Mapping[str, float]], side: str, name: str
) -> float:
    """By how much a counter has grown; one that is not there at all is an error."""
    return after[side][name] - before[side][name]


def completion(client: Client) -> list[Answer]:
    return whole(client, COMPLETIONS, client.completion())


def chat(client: Client) -> list[Answer]:
    return whole(client, CHATS, client.chat())


def two_answers(client: Client) -> list[Answer]:
    """Decode's second answer is computed there, and what prefill held for it is not fetched."""
    client.counts.expired += 1
    return whole(client, COMPLETIONS, client.completion(n=2, temperature=1.0, seed=7))


def whole(client: Client, path: str, body: Body) -> list[Answer]:
    client.counts.loads += 1
    answer, alone = client.ask(path, body), client.alone(path, body)
    pairs = zip(answer["choices"], alone["choices"], strict=True)
    return [judge(read([choice]), read([wanted])) for choice, wanted in pairs]


def completion_streamed(client: Client) -> list[Answer]:
    return events(client, COMPLETIONS, client.completion())


def chat_streamed(client: Client) -> list[Answer]:
    return events(client, CHATS, client.chat())


def events(client: Client, path: str, body: Body) -> list[Answer]:
    client.counts.loads += 1
    choices = [choice for event in client.listen(path, body) for choice in event["choices"]]
    return [judge(read(choices), read(client.alone(path, body)["choices"]))]


def left_at_once(client: Client) -> list[Answer]:
    client.counts.perhaps += 1
    client.leave(COMPLETIONS, client.completion(LONG))
    return []


def left_in_stream(client: Client) -> list[Answer]:
    client.counts.loads += 1
    heard = list(itertools.islice(client.listen(COMPLETIONS, client.completion(LONG)), 2))
    return [Answer(Verdict.RIGHT if len(heard) == 2 else Verdict.WRONG, note="" if heard else "no event came")]


def never_fetched(client: Client) -> list[Answer]:
    client.counts.expired += 1
    client.hold(COMPLETIONS, client.completion())
    held = client.metrics()["prefill"][HELD]
    return [] if held == 1 else [Answer(Verdict.WRONG, note=f"{held:g} requests are held, wanted 1")]


def rejected(client: Client) -> list[Answer]:
    """Prefill is told by decode's server that its blocks are not needed: nothing expires."""
    try:
        client.ask(COMPLETIONS, client.completion(2 * LONGEST))
    except (HttpError, HTTPException):
        return []
    return [Answer(Verdict.WRONG, note="decode takes more than its context")]


CALLS: Mapping[Call, Callable[[Client], list[Answer]]] = {
    Call.COMPLETION: completion,
    Call.COMPLETION_STREAMED: completion_streamed,
    Call.CHAT: chat,
    Call.CHAT_STREAMED: chat_streamed,
    Call.TWO_ANSWERS: two_answers,
    Call.LEFT_AT_ONCE: left_at_once,
    Call.LEFT_IN_STREAM: left_in_stream,
    Call.NEVER_FETCHED: never_fetched,
    Call.REJECTED: rejected,
}


def read(choices: Sequence[Body]) -> Word:
    """Tokens and logprobs of one answer, in one piece or in many; how it ended."""
    tokens = [token for choice in choices for token in choice.get("token_ids") or ()]
    values = [value for choice in choices for value in logprobs(choice.get("logprobs") or {})]
    return {"tokens": tokens, "logprobs": values, "reason": choices[-1].get("finish_reason") if choices else "nothing"}


def logprobs(said: Body) -> list[float]:
    """The logprobs of a completion, or of a chat."""
    return said.get("token_logprobs") or [each["logprob"] for each in said.get("content") or ()]
