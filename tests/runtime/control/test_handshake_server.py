"""How a prefill worker answers one that introduces itself: a card, or which error it is."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.runtime.helpers.control import ABSURD, HELLO, OWN, PLAN, absurd, changed, lie, local, unsealed

from kvplan.runtime import errors
from kvplan.runtime.control.card import EngineCard, Hello, Refusal, describe, seal
from kvplan.runtime.control.handshake_server import answer_hello, check_like, served_plan
from kvplan.runtime.control.identity import Identity, scales
from kvplan.runtime.plans.catalog import FixedPlans


def refused(hello: Hello, **me: Any) -> str:
    answer = answer_hello(hello, local(**me))
    assert isinstance(answer, Refusal)
    assert (answer.nonce, answer.again) == (hello.nonce, False)
    return f"{answer.code} {answer.message}"


def test_greet_shows_cards_and_serves_the_plan() -> None:
    me = local(1, metadata=b"m1", generation=9)
    assert served_plan(HELLO, me) is PLAN
    answer = answer_hello(HELLO, me)
    assert answer == describe(1, PLAN, "run-p", 9, lie(PLAN.prefill, 1), b"m1", HELLO.nonce)
    first = answer_hello(changed(HELLO, want="engine", plan="", model_digest=""), me)
    assert isinstance(first, EngineCard)
    assert (first.side, first.key, first.model_digest) == (PLAN.prefill.digest, "p", PLAN.model_digest)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"run": "run-p"}, "R023 decode engine 'decode-0' is this very engine"),
        ({"model_digest": "other"}, "R026 decode engine 'decode-0' has model digest 'other', ours is 'md'"),
        ({"model_digest": ""}, "R004 model digest is '', our plan has 'md'"),
        ({"revision": "a"}, "R026 decode engine 'decode-0' has revision 'a', ours is ''; this side gives none"),
        ({"want": "all"}, "R021 'all' is asked for"),
        ({"side": "other"}, "R005 no plan from side"),
        ({"plan": "other"}, "R004 plan digest is 'other', our plan has"),
        ({"worker": 1}, "R021 decode worker 1 is none of the plan's 1"),
        ({"card": changed(OWN, nonce=b"o")}, "R024 "),
        ({"card": changed(OWN, nonce=b"n", worker=7)}, "R020 worker 0 is meant, worker 7"),
        ({"card": changed(OWN, nonce=b"n", run="r")}, "R025 "),
        ({"card": changed(OWN, nonce=b"n", plan="r")}, "R004 worker 0 has plan digest 'r'"),
        ({"card": changed(OWN, nonce=b"n", metadata=b"r")}, "R020 the transport metadata of worker 0"),
    ],
)
def test_greet_refuses(change: dict, text: str) -> None:
    assert refused(changed(HELLO, **change)).startswith(text)


@pytest.mark.parametrize(("column", "value"), ABSURD)
def test_greet_refuses_absurd_numbers(column: str, value: Any) -> None:
    assert refused(changed(HELLO, card=absurd(changed(OWN, nonce=b"n"), column, value)))[:4] in ("R011", "R012", "R020")


def test_greet_refuses_those_who_have_no_business_here() -> None:
    other = replace(PLAN, notify=((),), reads=(PLAN.reads[0][:1],))
    worker = 1 - other.reads[0][0].worker
    assert "ask others than prefill worker" in refused(HELLO, worker=worker, plans=FixedPlans((other,)))


def test_greet_asks_for_patience_until_the_engine_is_up() -> None:
    answer = answer_hello(changed(HELLO, want="engine"), local(addresses=()))
    assert isinstance(answer, Refusal)
    assert answer.again


def test_what_greet_says_can_always_be_sent() -> None:
    long = changed(HELLO, key="k" * 4096, side="s" * 256)
    answer = answer_hello(long, local(plans=FixedPlans(())))
    assert unsealed(seal(answer), Refusal) == answer


def like(**change: Any) -> Identity:
    return replace(Identity("p", model_digest="m", revision="r1", scales=scales({"k": 1.0})), **change)


@pytest.mark.parametrize("change", [
    {"revision": "r2"}, {"revision": ""}, {"scales": scales({"k": math.nextafter(1.0, 2)})}, {"scales": ""},
    {"scales": scales({"k": 1.0, "v": 1.0})}, {"scales": scales({"v": 1.0})},
])  # fmt: skip
def test_engines_of_unlike_scales_or_revisions_are_refused_both_ways(change: dict[str, str]) -> None:
    mine, theirs = like(), like(**change)
    for one, other in ((mine, theirs), (theirs, mine)):
        with pytest.raises(errors.UnlikeError) as caught:
            check_like(one, other, "peer")
        for what in change:
            assert repr(getattr(one, what)) in str(caught.value)
            assert repr(getattr(other, what)) in str(caught.value)
    check_like(like(), like(), "peer")
