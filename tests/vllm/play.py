"""Play each case on a pair, and judge how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.vllm.cases import Aborts, AbortsAt, Case, Conversation, Fault, HandOver, Prompts, Tiered, Together
from tests.vllm.faults import FAULTS
from tests.vllm.judge import Answer, Outcome, Verdict
from tests.vllm.pair import Pair
from tests.vllm.process import EngineLost
from tests.vllm.requests import Asker
from tests.vllm.stages import aborted_at


def run(pair: Pair, case: Case) -> Outcome:
    """Play a case on running engines. The outcome says if an engine did not survive it."""
    asker = Asker(pair, case.name)
    answers: list[Answer] = []
    try:
        for answer in PLAYS[type(case.play)](asker, case.play):
            answers.append(answer)
        missing = pair.leaked(3.0 * pair.setup.lease_s)
    except EngineLost as error:
        return Outcome(answers, stopped=f"engine lost: {str(error).splitlines()[-1][:200]}")
    except TimeoutError as error:
        return Outcome(answers, stopped=f"hung: {error}")
    return Outcome(answers, leaked=", ".join(f"{count} blocks leaked on {side}" for side, count in missing.items()))


def prompts(asker: Asker, play: Prompts) -> Iterator[Answer]:
    texts = [asker.prompt(length) for length in play.lengths]
    preempted = asker.preempted()
    for text in texts:
        asker.learn("decode", text[: play.known_to_decode])
        asker.learn("prefill", text[: play.known_to_prefill])
    reads = not play.known_to_decode
    for _ in range(1 + play.again):
        if play.at_once:
            yield from asker.transfer_all(texts, play.tokens)
        else:
            yield from (asker.transfer(text, play.tokens, reads) for text in texts)
    if play.extended:
        yield from (asker.on_decode([*text, *asker.prompt(40)]) for text in texts)
    if play.preempts and asker.preempted() == preempted:
        yield Answer(Verdict.WRONG, note="decode did not preempt")


def conversation(asker: Asker, play: Conversation) -> Iterator[Answer]:
    text, said = asker.prompt(play.length), None
    for turn in range(play.turns):
        if turn and not play.known_to_prefill:
            asker.forget_on("prefill")
        lost = turn == play.lost > 0
        if lost:
            asker.forget_on("decode")
        answer, said = asker.turn(text, play.tokens, said, len(text) - play.more - 1 if turn and not lost else 0)
        yield answer
        text = [*text, *said["tokens"], *asker.prompt(play.more)]


def hand_over(asker: Asker, play: HandOver) -> Iterator[Answer]:
    for length in play.lengths:
        yield from asker.handed_over(asker.prompt(length), play.tokens, play.after)


def tiered(asker: Asker, play: Tiered) -> Iterator[Answer]:
    texts = [asker.prompt(length) for length in play.lengths]
    yield from (asker.transfer(text) for text in texts)
    on_decode = asker.from_tier if play.hits_on_decode else asker.on_decode
    for again in (on_decode, asker.from_tier_of_prefill):
        asker.forget()
        yield from (again(text) for text in texts)


def aborts(asker: Asker, play: Aborts) -> Iterator[Answer]:
    for steps in play.after:
        asker.aborted(asker.prompt(play.length), play.side, steps)
    yield asker.transfer(asker.prompt(play.length))


def aborts_at(asker: Asker, play: AbortsAt) -> Iterator[Answer]:
    for stage in play.stages:
        yield from aborted_at(asker, stage, play.length)
    yield asker.transfer(asker.prompt(play.length))


def together(asker: Asker, play: Together) -> Iterator[Answer]:
    preempted = asker.preempted("prefill")
    for steps in play.aborted_after:
        yield from asker.together([asker.prompt(play.lengths[0])], play.tokens, {play.side: steps})
    texts = [asker.prompt(length) for length in play.lengths]
    for text in texts:
        asker.learn("decode", text[: play.known_to_decode])
        asker.learn("prefill", text[: play.known_to_prefill])
    beside = asker.generate_beside() if play.preempts else []
    for group in [texts] if play.at_once else [[text] for text in texts]:
        yield from asker.together(group, play.tokens, reads=not play.at_once and not play.known_to_decode)
    for number in beside:
        asker.pair.prefill.answer(number)
    if play.preempts and asker.preempted("prefill") == preempted:
        yield Answer(Verdict.WRONG, note="prefill did not preempt")


def fault(asker: Asker, play: Fault) -> Iterator[Answer]:
    yield asker.transfer(asker.prompt(200))
    yield from FAULTS[play](asker)
    yield asker.transfer(asker.prompt(300))
    yield asker.transfer(asker.prompt(37))


PLAYS: Mapping[type, Callable[[Asker, Any], Iterator[Answer]]] = {
    Prompts: prompts,
    Conversation: conversation,
    HandOver: hand_over,
    Tiered: tiered,
    Aborts: aborts,
    AbortsAt: aborts_at,
    Together: together,
    Fault: fault,
}
