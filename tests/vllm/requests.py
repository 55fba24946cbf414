"""Requests as a router sends them: prefill with one token, then decode with what prefill said."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.vllm.cases import Connector, Side
from tests.vllm.judge import Answer, Verdict, compare, judge
from tests.vllm.pair import Pair
from tests.vllm.process import Word, wait_until

Prompt = list[int]
REMOTE_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
NAMES = itertools.count()
MEETINGS = 6
WORDS = range(3, 512)  # of the models; the first are special


class Asker:
    """Asks a pair for a case. Each case, and decode alone, has a salt of its own: it hits no prefix of another."""

    def __init__(self, pair: Pair, salt: str) -> None:
        self.pair, self.salt = pair, f"{salt} {next(NAMES)}"
        self._random = random.Random(self.salt)

    def prompt(self, length: int) -> Prompt:
        return self._random.choices(WORDS, k=length)

    def preempted(self, side: str = "decode") -> int:
        return int(self.pair.engines[side].call("count")["preempted"])

    def learn(self, side: str, text: Prompt) -> None:
        """Have a side compute `text`, so that it is a hit there."""
        if text:
            self.pair.engines[side].call("generate", id=name(), prompt=text, salt=self.salt, tokens=1)

    def forget(self) -> None:
        """Clear both pools, once nothing is held in them. Raises TimeoutError."""
        if missing := self.pair.leaked(3.0 * self.pair.setup.lease_s):
            raise TimeoutError(f"blocks are not free: {missing}")
        for engine in self.pair.engines.values():
            assert engine.call("forget")["forgot"]

    def on_decode(self, text: Prompt, tokens: int = 16) -> Answer:
        """Decode by itself, which may find what another request has left."""
        return judge(self.generate(text, tokens), self.alone(text, tokens))

    def generate(self, text: Prompt, tokens: int) -> Word:
        """Decode's answer by itself, with its blocks of this case."""
        return self.pair.decode.call("generate", id=name(), prompt=text, salt=self.salt, tokens=tokens)

    def from_tier(self, text: Prompt, tokens: int = 16) -> Answer:
        """Decode by itself, whose tier has the prompt."""
        found = self.generate(text, tokens)
        return self.hit(found, text, self.pair.setup.decode, judge(found, self.alone(text, tokens)))

    def from_tier_of_prefill(self, text: Prompt, tokens: int = 16) -> Answer:
        """By way of prefill, whose tier has the prompt."""
        request = name()
        held = self.held(text, request)
        answer = self.finish(self.start(held, text, tokens, request), text, tokens, request)
        return self.hit(held, text, self.pair.setup.prefill, answer)

    def hit(self, found: Word, text: Prompt, side: Side, answer: Answer) -> Answer:
        """`answer`, unless the tier of a side did not have all whole blocks before the last token."""
        wanted = (len(text) - 1) // (side.block or 1) * (side.block or 1)
        missed = Answer(Verdict.WRONG, note=f"{found['cached']} of {wanted} tokens came from the tier")
        return answer if found["cached"] >= wanted else missed

    def generate_beside(self) -> list[int]:
        """Requests that prefill serves by itself: their blocks grow by eight at a time, to more than it has."""
        words = [{"id": name(), "prompt": self.prompt(40), "salt": self.salt, "tokens": 240} for _ in range(8)]
        return [self.pair.prefill.ask("generate", **word) for word in words]

    def forget_on(self, side: str) -> None:
        """Clear one pool, once nothing is held in it. Raises TimeoutError."""
        engine, seconds = self.pair.engines[side], 3.0 * self.pair.setup.lease_s
        if not wait_until(lambda: bool(engine.call("forget")["forgot"]), seconds):
            raise TimeoutError(f"blocks of {side} are not free")

    def turn(self, text: Prompt, tokens: int, before: Word | None, known: int) -> tuple[Answer, Word]:
        """A turn of a conversation, whose prefill is told what decode said of the one `before`; and decode's answer.

        Prefill has to have `known` tokens of it without computing them, and the bytes of what decode has of them.
        """
        request, kv = name(), before["kv"] if before else REMOTE_DECODE
        reads = self.pair.setup.pages_known
        words: Word = {"id": request, "prompt": text, "salt": self.salt, "tokens": 1, "kv": kv}
        held = self.pair.prefill.call("generate", **words, read="loaded" * (reads and known > 0))
        number = self.pair.decode.ask(
            "generate", id=f"{request}there", prompt=text, salt=self.salt, tokens=tokens, kv=held["kv"],
            read="held" * reads,
        )  # fmt: skip
        said = self.pair.decode.answer(number)
        decides = self.pair.setup.tokens_decide
        answer = judge(said, self.alone(text, tokens), decides, self.pair.setup.logprob_gap)
        if held["cached"] != known and answer.verdict is Verdict.RIGHT:
            answer = Answer(Verdict.WRONG, note=f"prefill had {held['cached']} tokens, and not {known}")
        if before and known and reads:
            there = self.pair.prefill.call("contents", id=request)["contents"]
            answer = compare(answer, before["contents"], there, decides=True)
        said["contents"] = self.pair.decode.call("contents", id=f"{request}there")["contents"] if reads else None
        return answer, said

    def handed_over(self, text: Prompt, tokens: int, seconds: float) -> Iterator[Answer]:
        """A request that moves from decode to prefill and back while it generates, with the tokens of decode alone.

        The engine that it comes to loads all that was computed.
        """
        request, said, kv = name(), list[int](), dict[str, Any]()
        logprobs: list[float] = []
        for side in ("decode", "prefill", "decode"):
            last = side == "decode" and said
            engine, known = self.pair.engines[side], len(text) + len(said) - 1 if said else 0
            if said:
                self.forget_on(side)
            number = engine.ask(
                "generate", id=f"{request}{len(said)}", prompt=[*text, *said], salt=self.salt,
                tokens=tokens - len(said), kv={**kv, "transfer_id": request},
            )  # fmt: skip
            if not last:
                time.sleep(seconds)
                engine.call("generate", id=name(), prompt=[5], salt=self.salt, tokens=1, kv={"hand_over": [request]})
            answer = engine.answer(number)
            yield _moved(answer, known, tokens - len(said), bool(last))
            kv = (
                answer["kv"] or {}
                if side == "decode"
                else self._where(side, len(text) + len(said + answer["tokens"]) - 1)
            )
            said, logprobs = said + answer["tokens"], logprobs + answer["logprobs"]
        yield judge({**answer, "tokens": said, "logprobs": logprobs}, self.alone(text, tokens))

    def _where(self, side: str, tokens: int) -> dict[str, Any]:
        """A router's parameters for a streamed request: its place, and the number of tokens computed there."""
        port = self.pair.ports[side] + 10
        known = {"remote_host": "127.0.0.1", "remote_port": port, "remote_num_tokens": tokens}
        return {"do_remote_prefill": True, **known}

    def alone(self, text: Prompt, tokens: int) -> Word:
        """The oracle: what the decode engine says by itself."""
        salt = f"alone {next(NAMES)}"
        return self.pair.decode.call("generate", id=name(), prompt=text, salt=salt, tokens=tokens)

    def transfer(self, text: Prompt, tokens: int = 16, reads: bool = True) -> Answer:
        """Prefill, decode, and the same by decode alone; `reads`: compare the pages, too."""
        request, reads = name(), reads and self.pair.setup.pages_known
        held = self.held(text, request, reads)
        return self.finish(self.start(held, text, tokens, request, reads), text, tokens, request, reads)

    def held(self, text: Prompt, request: str, reads: bool = False) -> Word:
        """Prefill's answer once it holds `text`'s pages."""
        return self.pair.prefill.answer(self.start_prefill(text, request, reads))

    def start_prefill(self, text: Prompt, request: str, reads: bool = False, stands: bool = False) -> int:
        """Ask prefill; with `stands` it steps no more once it has answered, until it is told to `go`."""
        words: Word = {"id": request, "prompt": text, "salt": self.salt, "tokens": 1, "stands": stands}
        return self.pair.prefill.ask("generate", **words, kv=REMOTE_DECODE, read="held" * reads)

    def start(self, held: Word, text: Prompt, tokens: int, request: str, reads: bool = False) -> int:
        return self.pair.decode.ask(
            "generate", id=request, prompt=text, salt=self.salt, tokens=tokens, kv=held["kv"], read="loaded" * reads
        )

    def finish(self, number: int, text: Prompt, tokens: int, request: str, reads: bool = False) -> Answer:
        """How the request ended that decode was asked for. Raises TimeoutError."""
        loaded = self.pair.decode.answer(number)
        decide = self.pair.setup.tokens_decide
        answer = judge(loaded, self.alone(text, tokens), decide, self.pair.setup.logprob_gap)
        if not reads:
            return answer
        sent = self.pair.prefill.call("contents", id=request)["contents"]
        there = self.pair.decode.call("contents", id=request)["contents"]
        return compare(answer, sent, there, decides=not decide and len(text) > 1, unsent=self.pair.setup.unsent)

    def transfer_all(self, texts: Sequence[Prompt], tokens: int) -> Iterator[Answer]:
        """All at once: decode is asked as soon as prefill has answered."""
        names = [name() for _ in texts]
        asked = [self.start_prefill(text, request) for text, request in zip(texts, names, strict=True)]
        held = (self.pair.prefill.answer(number) for number in asked)
        started = [
            self.start(word, text, tokens, request) for word, text, request in zip(held, texts, names, strict=True)
        ]
        for number, text, request in zip(started, texts, names, strict=True):
            yield self.finish(number, text, tokens, request)

    def together(
        self, texts: Sequence[Prompt], tokens: int, aborts: Mapping[str, int] | None = None, reads: bool = False
    ) -> Iterator[Answer]:
        """Both engines are asked at once, decode first; a side that aborts does so after so many of its steps."""
        names = {name(): text for text in texts}
        after = {side: {"abort_after": steps} for side, steps in (aborts or {}).items()}
        port = self.pair.ports["prefill"] + 10
        address = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": port}
        decoding = {
            request: self.pair.decode.ask(
                "generate", id=request, prompt=text, salt=self.salt, tokens=tokens,
                kv={**address, "transfer_id": request}, read="loaded" * reads, **after.get("decode", {}),
            )
            for request, text in names.items()
        }  # fmt: skip
        prefilling = [
            self.pair.prefill.ask(
                "generate", id=request, prompt=text, salt=self.salt, tokens=1,
                kv={**REMOTE_DECODE, "transfer_id": request}, read="held" * reads, **after.get("prefill", {}),
            )
            for request, text in names.items()
        ]  # fmt: skip
        for number in prefilling:
            self.pair.prefill.answer(number)
        for request, number in decoding.items():
            if "decode" in after:
                self.pair.decode.answer(number)
            else:
                yield self.finish(number, names[request], tokens, request, reads)

    def aborted(self, text: Prompt, side: str, steps: int) -> None:
        """A request that its client gives up after `steps` steps on one side."""
        request = name()
        remote = REMOTE_DECODE if side == "prefill" else self.held(text, request)["kv"]
        words: Word = {"id": request, "prompt": text, "salt": self.salt, "kv": remote}
        tokens = 1 if side == "prefill" else 400
        self.pair.engines[side].call("generate", **words, tokens=tokens, abort_after=steps)


def _moved(answer: Word, known: int, tokens: int, last: bool) -> Answer:
    """Whether an engine loaded what the one before had, and was made to stop where it was to."""
    if answer["cached"] != known:
        return Answer(Verdict.WRONG, note=f"{answer['cached']} tokens were loaded, and not {known}")
    goes_on = bool((answer["kv"] or {}).get("do_remote_prefill"))
    if goes_on is last or (len(answer["tokens"]) < tokens) is last:
        return Answer(Verdict.WRONG, note=f"it ended after {len(answer['tokens'])} of {tokens} tokens")
    return Answer(Verdict.RIGHT)


def name() -> str:
    return f"request{next(NAMES)}"


def meet(pair: Pair) -> None:
    """First requests, which no case counts: every worker may compile the plan, for longer than meeting may take.

    Raises EngineLost, TimeoutError.
    """
    asker = Asker(pair, "meeting")
    for _ in range(MEETINGS if pair.connector is Connector.KVPLAN else 1):
        if asker.transfer(asker.prompt(3), reads=False).verdict is Verdict.RIGHT:
            return
