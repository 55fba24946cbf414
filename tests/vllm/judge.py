"""How a request ended, against the decode engine alone, and what that says of a case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tests.vllm import pages
from tests.vllm.process import Word


class Verdict(Enum):
    RIGHT = "right"
    REFUSED = "refused"
    WRONG = "wrong"
    HUNG = "hung"


RIGHT_ONLY = frozenset({Verdict.RIGHT})
REFUSED_ONLY = frozenset({Verdict.REFUSED})


@dataclass(frozen=True)
class Answer:
    """How one request ended; which endings are as they should be."""

    verdict: Verdict
    allowed: frozenset[Verdict] = RIGHT_ONLY
    note: str = ""

    @property
    def as_wanted(self) -> bool:
        return self.verdict in self.allowed


@dataclass(frozen=True)
class Outcome:
    """A case's answers, the blocks that are not free again, and what stopped it."""

    answers: Sequence[Answer] = ()
    leaked: str = ""
    stopped: str = ""

    @property
    def as_wanted(self) -> bool:
        return (
            bool(self.answers) and all(answer.as_wanted for answer in self.answers) and not self.leaked + self.stopped
        )

    @property
    def word(self) -> str:
        """A cell of the table."""
        if self.stopped:
            return f"**{self.stopped}**"
        verdicts = [answer.verdict for answer in self.answers]
        parts = [counted(verdict, verdicts) for verdict in Verdict if verdict in verdicts]
        said = ", ".join(parts) if len(parts) > 1 else verdicts[0].value
        said = said if all(answer.as_wanted for answer in self.answers) else f"**{said}**"
        return f"{said}, **{self.leaked}**" if self.leaked else said


def counted(verdict: Verdict, verdicts: Sequence[Verdict]) -> str:
    return f"{verdicts.count(verdict)} {verdict.value}"


def judge(loaded: Word, alone: Word, tokens_decide: bool = True, logprob_gap: float = 1e-3) -> Answer:
    """A request that ended, against the decode engine's own answer."""
    if not loaded["tokens"]:
        return Answer(Verdict.REFUSED, note=f"no token, reason {loaded['reason']}")
    if not tokens_decide:
        return Answer(Verdict.RIGHT)
    equal = sum(left == right for left, right in zip(loaded["tokens"], alone["tokens"], strict=False))
    if loaded["tokens"] != alone["tokens"]:
        return Answer(Verdict.WRONG, note=f"{equal} of {len(alone['tokens'])} tokens are right")
    gap = max(abs(left - right) for left, right in zip(loaded["logprobs"], alone["logprobs"], strict=True))
    return Answer(Verdict.RIGHT if gap <= logprob_gap else Verdict.WRONG, note=f"logprobs differ by {gap:.1e}")


def compare(answer: Answer, sent: Word | None, loaded: Word | None, decides: bool, unsent: str = "") -> Answer:
    """`answer`, unless decode's pages are not those of prefill. If bytes decide, they have to be there.

    Layers whose names begin with `unsent` decode has alone.
    """
    if answer.verdict is not Verdict.RIGHT:
        return answer
    if sent is None or loaded is None:
        return Answer(Verdict.WRONG, note="no pages to compare") if decides else answer
    layers = [name for name in pages.unequal(sent, loaded) if not (unsent and name.startswith(unsent))]
    return Answer(Verdict.WRONG, note=f"other bytes in {', '.join(layers)}") if layers else answer
