"""The scheduler's half: how many tokens come from elsewhere, which blocks are kept, what is ordered, each once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.integrations.vllm.requests import STATE, TOKENS, FakeRequest, facts, held, to_decode, to_prefill

from kvplan.integrations.shared.config import ConnectorConfig
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.names import held_name, prompt_digest
from kvplan.integrations.shared.note import PrefillNote, read_note
from kvplan.integrations.vllm.metadata import (
    BlockIds,
    GroupName,
    HoldOrder,
    LoadOrder,
    RemotePrefill,
    StepOrders,
    WorkerFacts,
    remote_prefill,
)
from kvplan.integrations.vllm.scheduler import ConnectorScheduler, GroupTable

SERVED = "FINISHED_LENGTH_CAPPED"
FULL, WINDOW, SLOTS = GroupTable(0), GroupTable(1, forgets=True), GroupTable(1, 0, forgets=True)


def scheduler(*tables: GroupTable) -> ConnectorScheduler:
    made = ConnectorScheduler("e", tables or (FULL,))
    made.registered([facts()])
    made.orders()
    return made


def told(made: ConnectorScheduler) -> StepOrders:
    orders = made.orders()
    assert made.orders() == StepOrders()
    return orders


def test_steps_are_looked_at_while_there_is_anything_to_tell_or_a_prompt_to_offer() -> None:
    made, request = scheduler(), to_prefill("p", 40)
    request.kv_transfer_params = {"do_remote_decode": True, "transfer_id": "t"}
    assert made.quiet
    made.arrived(request)
    assert not made.quiet
    made.finished(request, ([1],), "FINISHED_ABORTED")
    assert told(made).withdrawals
    assert made.quiet


# Decode


@pytest.mark.parametrize(("local", "external"), [(0, 39), (32, 7), (39, 0), (40, 0)])
def test_all_but_the_last_token_and_what_is_here_comes_from_prefill(local: int, external: int) -> None:
    made, request = scheduler(), to_decode("d", 40, held(40))
    made.arrived(request)
    assert made.matched(request, local) == external


@pytest.mark.parametrize(("tables", "hidden"), [((FULL,), False), ((FULL, WINDOW), True), ((FULL, SLOTS), False)])
def test_no_prompt_finds_a_block_of_a_window_that_is_loaded_in_part(tables: Any, hidden: bool) -> None:
    first, second = (to_decode(name, 40, held(40)) for name in "de")
    for request in (first, second):
        scheduler(*tables).arrived(request)
    assert (first.block_hashes == [b"first", b"second"]) == (not hidden)
    assert len({*first.block_hashes, *second.block_hashes}) == (4 if hidden else 2)


def test_a_window_that_is_computed_here_is_found() -> None:
    refused = to_decode("d", 40, replace(held(40), prompt="another"))
    alone = FakeRequest("d", 40)
    for request in (refused, alone):
        scheduler(FULL, WINDOW).arrived(request)
        assert request.block_hashes == [b"first", b"second"]


def test_no_more_than_prefill_computed_is_asked_for() -> None:
    made, request = scheduler(), to_decode("d", 40, held(33))
    made.arrived(request)
    assert made.matched(request, 0) == 33


def test_a_load_is_ordered_once_for_what_the_engine_allocated() -> None:
    made, remote = scheduler(), held(40)
    request = to_decode("d", 40, remote)
    made.arrived(request)
    for _ in range(3):
        assert made.matched(request, 16) == 23
    made.allocated(request, [[5, 6, 7]], 23)
    # When it has arrived the engine says so of the rest; and after a preemption all is computed here.
    made.allocated(request, [[5, 6, 7]], 0)
    assert made.matched(request, 0) == 0
    assert told(made) == StepOrders(loads=(LoadOrder("d", (16, 39), ((5, 6, 7),), remote),))


@pytest.mark.parametrize("local", [39, 48])
def test_a_whole_local_hit_tells_prefill_that_its_blocks_are_free(local: int) -> None:
    made, remote = scheduler(), held(40)
    request = to_decode("d", 40, remote)
    made.arrived(request)
    assert made.matched(request, local) == 0
    made.allocated(request, [[5, 6, 7]], 0)
    (order,) = told(made).loads
    assert (order.blocks, order.tokens[0] == order.tokens[1]) == ((), True)


def test_a_prompt_of_one_token_is_computed_here() -> None:
    made, request = scheduler(), to_decode("d", 1, held(1))
    made.arrived(request)
    assert made.matched(request, 0) == 0
    made.allocated(request, [[5]], 0)
    assert told(made).loads[0].blocks == ()


def test_one_that_ends_before_it_is_scheduled_lets_prefill_s_blocks_go() -> None:
    made, request = scheduler(), to_decode("d", 40, held(40))
    made.arrived(request)
    assert made.finished(request, [[]], "FINISHED_ABORTED") == (False, None)
    orders = told(made)
    assert [order.blocks for order in orders.loads] == [()]
    assert not orders.cancels


def test_one_that_ends_while_it_is_loaded_is_cancelled_and_one_that_is_there_is_not() -> None:
    made = scheduler()
    for name in ("gone", "there"):
        request = to_decode(name, 40, held(40))
        made.arrived(request)
        made.matched(request, 0)
        made.allocated(request, [[5, 6, 7]], 39)
        told(made)
        if name == "there":
            made.loaded([name])
        assert made.finished(request, [[5, 6, 7]], "FINISHED_ABORTED") == (False, None)
        assert told(made).cancels == (() if name == "there" else (name,))


def test_a_load_that_is_over_cancels_none_of_the_same_name() -> None:
    made = scheduler()
    for _ in range(2):
        request = to_decode("d", 40, held(40))
        made.arrived(request)
        made.allocated(request, [[5, 6, 7]], made.matched(request, 0))
        orders = told(made)
        assert (len(orders.loads), orders.cancels) == (1, ())
        # vLLM ends a request like this if its load failed.
        made.finished(request, [[5, 6, 7]], "FINISHED_ERROR")
        made.loaded(["d"])


@pytest.mark.parametrize("change", [{"remote_port": None}, {"remote_block_ids": "x"}, {"remote_groups": []}])
def test_parameters_that_cannot_be_read_are_no_load(change: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    made, request = scheduler(), to_decode("d", 40, held(40))
    assert request.kv_transfer_params is not None
    request.kv_transfer_params |= change
    made.arrived(request)
    assert made.matched(request, 0) == 0
    made.allocated(request, [[5]], 0)
    assert told(made) == StepOrders()
    assert "parameters refused" in caplog.text


def test_an_engine_that_only_prefills_loads_nothing(caplog: pytest.LogCaptureFixture) -> None:
    made, request = ConnectorScheduler("e", (FULL,), decodes=False), to_decode("d", 40, held(40))
    made.arrived(request)
    assert made.matched(request, 0) == 0
    made.allocated(request, [[5, 6, 7]], 0)
    assert told(made) == StepOrders()
    assert "does not decode" in caplog.text
    assert " held=" in caplog.text, "prefill's log has this name"


def read_on_decode(request: FakeRequest, held_as: FakeRequest) -> tuple[int, StepOrders]:
    """How many tokens come from prefill, which computed `held_as`, and what is ordered."""
    prefill, decode = scheduler(), scheduler()
    prefill.arrived(held_as)
    held_as.num_computed_tokens = held_as.num_prompt_tokens
    _, request.kv_transfer_params = prefill.finished(held_as, [[3, 9, 4]], SERVED)
    decode.arrived(request)
    external = decode.matched(request, 0)
    decode.allocated(request, [[5, 6, 7]], external)
    return external, told(decode)


@dataclass(frozen=True)
class Shown:
    """An image that stands in a prompt from token `offset` on."""

    identifier: str
    offset: int = 4

    @property
    def mm_position(self) -> Shown:
        return self


def test_a_prompt_that_was_not_prefilled_is_computed_here(caplog: pytest.LogCaptureFixture) -> None:
    request = FakeRequest("d", 40)
    assert request.prompt_token_ids is not None
    request.prompt_token_ids[7] = 99
    external, orders = read_on_decode(request, to_prefill("r", 40))
    assert (external, [(order.tokens, order.blocks) for order in orders.loads]) == (0, [((0, 0), ())])
    assert "another prompt was prefilled" in caplog.text


@pytest.mark.parametrize(("tokens", "external"), [(40, 39), (41, 40), (50, 40), (39, 0)])
def test_a_prompt_may_go_on_behind_what_was_prefilled(tokens: int, external: int) -> None:
    assert read_on_decode(FakeRequest("d", tokens), to_prefill("r", 40))[0] == external


@pytest.mark.parametrize(
    ("images", "external"), [([Shown("a")], 39), ([Shown("b")], 0), ([], 0), ([Shown("a"), Shown("b", 60)], 39)]
)
def test_images_are_part_of_a_prompt(images: list[Shown], external: int) -> None:
    prefilled = to_prefill("r", 40)
    prefilled.mm_features = [Shown("a")]
    request = FakeRequest("d", 40, mm_features=images)
    assert read_on_decode(request, prefilled)[0] == external


@pytest.mark.parametrize(
    ("salt", "lora", "external"), [(None, None, 39), ("a", None, 0), (None, "b", 0), ("a", "b", 0), ("b", "a", 0)]
)
def test_a_salt_and_a_lora_are_part_of_a_prompt(salt: str | None, lora: str | None, external: int) -> None:
    request = FakeRequest("d", 40)
    request.cache_salt, request.lora_request = salt, SimpleNamespace(lora_name=lora) if lora else None
    assert read_on_decode(request, to_prefill("r", 40))[0] == external


def test_what_one_request_loads_no_other_does(caplog: pytest.LogCaptureFixture) -> None:
    """Prefill holds it once: of several answers to one prompt, and of a retry, the first one loads it."""
    made, remote = scheduler(), held(40)
    first, second, other = (to_decode(name, 40, remote) for name in ("first", "second", "other"))
    for request in (first, second):
        made.arrived(request)
    assert (made.matched(first, 0), made.matched(second, 0)) == (39, 0)
    assert "another request has what they name" in caplog.text
    assert told(made) == StepOrders()
    made.allocated(first, [[5, 6, 7]], 39)
    made.finished(second, [[8, 9, 10]], SERVED)
    third = to_decode("third", 40, replace(remote, request="r-2"))
    made.arrived(third)
    made.arrived(other)
    assert (made.matched(third, 0), made.matched(other, 0)) == (39, 0)
    made.finished(first, [[5, 6, 7]], SERVED)
    made.arrived(other)
    assert made.matched(other, 0) == 39


def refusing(*peers: str) -> Callable[[str], str]:
    """Return the check of hosts in an engine with keys and these peers."""
    return ConnectorConfig(keys="keys", peers=peers).refuses


@pytest.mark.parametrize(("peers", "external"), [
    (("127.0.0.1",), 39),
    (("10.0.0.2",), 0),
    ((), 39),
    (("10.0.0.0/8", "127.0.0.0/8"), 39),
    (("10.0.0.0/8", "::1/128"), 0),
    (("prefill",), 0),
])  # fmt: skip
def test_only_peers_are_met_where_they_are_named(peers: tuple[str, ...], external: int) -> None:
    made, request = ConnectorScheduler("e", (FULL,), refuses=refusing(*peers)), to_decode("d", 40, held(40))
    made.arrived(request)
    assert made.matched(request, 0) == external


def test_without_a_digest_nothing_is_loaded() -> None:
    made, remote = scheduler(), replace(held(40), prompt="")
    for request in (to_decode("d", 40, remote), to_decode("e", 40, remote)):
        request.prompt_embeds = "some" if request.request_id == "e" else None
        made.arrived(request)
        assert made.matched(request, 0) == 0


# Prefill


def test_a_prefilled_request_is_held_and_its_client_told() -> None:
    made, request = scheduler(), to_prefill("r", 40)
    made.arrived(request)
    assert made.matched(request, 0) == 0
    request.num_computed_tokens = 40
    kept, params = made.finished(request, [[3, 9, 4]], SERVED)
    assert kept
    assert params is not None
    prompt = prompt_digest(range(40))
    wanted = RemotePrefill("e", "r", "127.0.0.1", 7600, 40, (TOKENS,), ((3, 9, 4),), prompt=prompt)
    assert remote_prefill(params) == wanted
    assert told(made) == StepOrders(holds=(HoldOrder("r", 40, ((3, 9, 4),), prompt),))


@pytest.mark.parametrize("numbers", [(0, 0), (0, 2), (1,)])
def test_workers_that_are_not_each_one_once_stop_the_engine(numbers: tuple[int, ...]) -> None:
    with pytest.raises(ConnectorError, match="I008"):
        ConnectorScheduler("e", (FULL,)).registered([facts(number) for number in numbers])


@pytest.mark.parametrize("state", ["FINISHED_ABORTED", "FINISHED_IGNORED", "FINISHED_ERROR"])
def test_one_that_did_not_end_well_is_not_held(state: str) -> None:
    made, request = scheduler(), to_prefill("r", 40)
    made.arrived(request)
    assert made.finished(request, [[3, 9]], state) == (False, None)
    assert told(made) == StepOrders()


def test_a_request_of_nobody_else_is_left_alone() -> None:
    made, request = scheduler(WINDOW, SLOTS), FakeRequest("r", 40)
    made.arrived(request)
    assert (request.num_prompt_tokens, request.max_tokens, made.matched(request, 0)) == (40, 16, 0)
    made.allocated(request, [[1], [2]], 0)
    assert made.finished(request, [[1], [2]], SERVED) == (False, None)
    assert told(made) == StepOrders()


@pytest.mark.parametrize(
    ("table", "tokens", "left"), [(SLOTS, 40, 39), (WINDOW, 40, 39), (GroupTable(1), 40, 40), (SLOTS, 1, 1)]
)
def test_prefill_stops_before_the_last_token_where_what_lies_behind_is_forgotten(
    table: GroupTable, tokens: int, left: int
) -> None:
    made, request = scheduler(FULL, table), to_prefill("r", tokens)
    made.arrived(request)
    assert request.prompt_token_ids == list(range(left))
    assert request._all_token_ids == list(range(left))
    assert request.num_prompt_tokens == left
    assert request.max_tokens == (16 if left == tokens else 1)


def test_tokens_that_drafts_look_ahead_to_are_decode_s() -> None:
    made, ahead = ConnectorScheduler("e", (FULL,), 3), to_prefill("r", 40)
    made.registered([facts()])
    made.arrived(ahead)
    # Prefill computes them all: a draft's row before the end is of the prompt's token, not of a sampled one.
    assert (ahead.num_prompt_tokens, ahead.prompt_token_ids) == (40, list(range(40)))
    request = to_decode("d", 40, held(40))
    made.arrived(request)
    assert made.matched(request, 0) == 37


@pytest.mark.parametrize(
    ("scratch", "ids", "slot"),
    [(0, [6], (6,)), (0, [0, 0, 5, 6], (6,)), (2, [6, 7, 8], (6,)), (2, [6], (6,)), (0, [], ())],
)
def test_a_state_s_slot_is_the_last_one_before_scratch(scratch: int, ids: list[int], slot: tuple[int, ...]) -> None:
    assert GroupTable(0, scratch, forgets=True).of([ids]) == slot


def test_groups_that_are_not_moved_are_not_told() -> None:
    made, request = scheduler(GroupTable(2)), to_prefill("r", 40)
    made.arrived(request)
    made.finished(request, [[1], [2], [3, 4]], SERVED)
    assert told(made).holds[0].blocks == ((3, 4),)


def test_a_prompt_of_embeddings_is_left_to_decode() -> None:
    made, request = scheduler(SLOTS), to_prefill("r", 40)
    request.prompt_embeds = "some"
    made.arrived(request)
    assert request.num_prompt_tokens == 40
    assert made.finished(request, [[1], [2]], SERVED) == (False, None)
    assert told(made) == StepOrders()


def test_a_prompt_that_decode_computes_as_a_whole_is_left_as_it_is() -> None:
    """Its logprobs are wanted: vLLM loads nothing then."""
    made, request = scheduler(SLOTS), to_prefill("r", 40)
    request.skip_reading_prefix_cache = True
    made.arrived(request)
    assert (request.num_prompt_tokens, request.max_tokens) == (40, 16)
    assert made.finished(request, [[1], [2]], SERVED) == (False, None)
    assert told(made) == StepOrders()


def test_stages_of_a_pipeline_say_their_groups_together_and_all_are_announced_once() -> None:
    made = ConnectorScheduler("e", (FULL, SLOTS))
    made.registered([facts(1, (TOKENS, GroupName())), facts(0, (GroupName(), STATE), "key")])
    assert made.orders() == StepOrders(addresses=("tcp://127.0.0.1:7600", "tcp://127.0.0.1:7601"))
    request = to_prefill("r", 40)
    _, params = made.finished(request, [[1], [2]], SERVED)
    remote = remote_prefill(params or {})
    assert remote is not None
    assert (remote.groups, remote.address, remote.key) == ((TOKENS, STATE), "tcp://127.0.0.1:7600", "key")
    assert made.orders().addresses == ()


def test_workers_that_only_decode_announce_nothing() -> None:
    made = ConnectorScheduler("e", (FULL,))
    made.registered([WorkerFacts(0, "", (TOKENS,), "")])
    assert made.orders() == StepOrders()


def test_an_engine_that_only_decodes_holds_nothing() -> None:
    made, request = ConnectorScheduler("e", (SLOTS,)), to_prefill("r", 40)
    made.registered([WorkerFacts(0, "", (TOKENS,), "")])
    made.arrived(request)
    assert (request.num_prompt_tokens, request.max_tokens) == (40, 16)
    assert made.finished(request, [[1], [2]], SERVED) == (False, None)


# Prompts that a router sends to both engines at once


def sent_to_both(name: str, tokens: int = 40, transfer: object = "t", **more: object) -> FakeRequest:
    return FakeRequest(name, tokens, {"do_remote_decode": True, "transfer_id": transfer, **more})


def asked_early(name: str, tokens: int = 40, /, **more: object) -> FakeRequest:
    where: dict[str, object] = {"remote_host": "127.0.0.1", "remote_port": 7600}
    return FakeRequest(name, tokens, {"do_remote_prefill": True, "transfer_id": "t", **where, **more})


def step(*new: tuple[str, int, int], old: Sequence[tuple[str, int, int]] = (), preempted: Sequence[str] = ()) -> Any:
    """vLLM's SchedulerOutput, of (request, tokens before, tokens of the step), each with one new block."""
    scheduled = {name: count for name, _, count in (*new, *old)}
    cached = SimpleNamespace(
        req_ids=[each[0] for each in old],
        new_block_ids=[([7],) if each[2] % 2 == 0 else None for each in old],
        num_computed_tokens=[each[1] for each in old],
        resumed_req_ids=set(),
    )
    first = [SimpleNamespace(req_id=name, block_ids=([5, 6],), num_computed_tokens=before) for name, before, _ in new]
    return SimpleNamespace(
        scheduled_new_reqs=first,
        scheduled_cached_reqs=cached,
        num_scheduled_tokens=scheduled,
        preempted_req_ids=set(preempted),
    )


def chunks(made: ConnectorScheduler, output: Any) -> list[tuple[tuple[int, int], BlockIds]]:
    made.scheduled(output)
    return [(chunk.tokens, chunk.blocks) for chunk in told(made).chunks]


PROMPT = prompt_digest(range(40))
NAME = f"t#{PROMPT}"


def test_each_step_s_tokens_are_offered_with_those_that_were_found() -> None:
    made = scheduler()
    made.arrived(sent_to_both("r"))
    assert chunks(made, step(("r", 16, 8))) == [((0, 24), ((5, 6),))]
    assert chunks(made, step(old=[("r", 24, 8)])) == [((24, 32), ((5, 6, 7),))]
    assert chunks(made, step(old=[("other", 3, 1)])) == []
    assert chunks(made, step(old=[("r", 32, 8)])) == [((32, 40), ((5, 6, 7, 7),))]
    assert chunks(made, step(old=[("r", 40, 1)])) == []


@pytest.mark.parametrize("transfer", [None, "", 7, "x" * 201, "\ud800"])
def test_what_no_router_named_is_held_at_its_end(transfer: object) -> None:
    made, request = scheduler(), sent_to_both("r", transfer=transfer)
    made.arrived(request)
    assert chunks(made, step(("r", 0, 40))) == []
    request.num_computed_tokens = 40
    made.finished(request, [[5, 6]], SERVED)
    assert [hold.shared for hold in told(made).holds] == [""]


def test_one_that_offers_nothing_early_holds_by_the_shared_name() -> None:
    made, request = scheduler(), sent_to_both("r")
    made.offers = False
    made.arrived(request)
    assert chunks(made, step(("r", 0, 40))) == []
    request.num_computed_tokens = 40
    _, params = made.finished(request, [[5, 6]], SERVED)
    assert params is not None
    assert (params["remote_request_id"], params["remote_num_tokens"], params["remote_prompt"]) == ("t", 40, PROMPT)
    assert told(made) == StepOrders(holds=(HoldOrder("r", 40, ((5, 6),), PROMPT, "t"),))


@pytest.mark.parametrize(
    "again",
    [
        step(old=[("r", 0, 8)], preempted=["r"]),
        step(("r", 0, 8)),  # as it comes once more where nobody says that it was preempted
        step(old=[("r", 16, 8)]),
        step(old=[("r", 24, 0)], preempted=["r"]),  # what it had computed was found again
    ],
)
def test_a_prompt_that_is_computed_anew_gets_another_name(again: Any) -> None:
    made, request = scheduler(), sent_to_both("r")
    made.arrived(request)
    assert len(chunks(made, step(("r", 0, 24)))) == 1
    assert chunks(made, again) == []
    assert chunks(made, step(old=[("r", 24, 16)])) == []
    request.num_computed_tokens = 40
    made.finished(request, [[8, 9]], SERVED)
    assert told(made) == StepOrders(holds=(HoldOrder("r", 40, ((8, 9),), PROMPT, "t.again"),), withdrawals=(NAME,))


def test_a_prompt_that_is_aborted_is_withdrawn() -> None:
    made, request = scheduler(), sent_to_both("r")
    made.arrived(request)
    assert made.finished(request, [[]], "FINISHED_ABORTED") == (False, None)
    assert told(made) == StepOrders(withdrawals=(NAME,))


def test_of_two_prompts_of_a_name_one_is_offered() -> None:
    made = scheduler()
    for name in ("r", "s"):
        made.arrived(sent_to_both(name))
    made.scheduled(step(("r", 0, 8), ("s", 0, 8)))
    assert [(chunk.name, chunk.tokens) for chunk in told(made).chunks] == [(NAME, (0, 8))]


def test_decode_asks_for_what_its_own_prompt_is_called() -> None:
    made, request = scheduler(), asked_early("d")
    made.arrived(request)
    assert made.matched(request, 16) == 23
    made.allocated(request, [[5, 6, 7]], 23)
    (order,) = told(made).loads
    assert (order.tokens, order.remote.held_name, order.remote.early) == ((16, 39), NAME, True)
    assert (order.remote.engine, order.remote.address, order.remote.key) == ("", "tcp://127.0.0.1:7600", "")


def test_both_engines_have_one_name_where_prefill_stops_short() -> None:
    prefill, request = scheduler(FULL, SLOTS), sent_to_both("r")
    prefill.registered([facts(groups=(TOKENS, STATE))])
    prefill.arrived(request)
    request.num_computed_tokens = 39
    request.generated = [7]
    _, params = prefill.finished(request, [[5, 6], [7]], SERVED)
    assert [(hold.held_name, hold.tokens, hold.note) for hold in told(prefill).holds] == [(NAME, 39, b"")]
    assert params is not None
    decode, wanted = scheduler(FULL, SLOTS), FakeRequest("d", 40, params)
    decode.arrived(wanted)
    assert decode.matched(wanted, 0) == 39, "the digest of the whole prompt names it, too"


def test_a_prompt_that_is_wanted_whole_is_not_cut_short() -> None:
    """Decode computes none of it: it needs the first token, too."""
    made, request = scheduler(FULL, SLOTS), sent_to_both("r", whole_prompt=True)
    made.arrived(request)
    request.num_computed_tokens, request.generated = 40, [7]
    made.finished(request, [[5, 6], [7]], SERVED)
    (hold,) = told(made).holds
    assert (hold.held_name, hold.tokens) == (NAME, 40)
    assert read_note(hold.note) == PrefillNote(7)


def test_the_first_token_goes_with_what_is_held() -> None:
    made, request = scheduler(), to_prefill("r", 40)
    made.arrived(request)
    request.num_computed_tokens, request.generated = 40, [300]
    made.finished(request, [[5, 6]], SERVED)
    assert [read_note(hold.note).token for hold in told(made).holds] == [300]


@pytest.mark.parametrize(
    "more",
    [
        {"transfer_id": ""},
        {"remote_port": 0},
        {"remote_host": None},
        {"remote_engine_id": 4},
        {"remote_key": "\ud800"},
    ],
)
def test_an_early_request_that_is_not_whole_is_computed_here(more: dict[str, object]) -> None:
    made, request = scheduler(), asked_early("d", 40, **more)
    made.arrived(request)
    assert made.matched(request, 0) == 0


def test_what_prefill_will_not_hold_is_not_asked_for_early() -> None:
    made, request = scheduler(), asked_early("d")
    request.skip_reading_prefix_cache = True
    made.arrived(request)
    assert made.matched(request, 0) == 0


def test_an_early_request_may_name_peers_alone() -> None:
    made, request = scheduler(), asked_early("d")
    made.refuses = refusing("10.0.0.2")
    made.arrived(request)
    assert made.matched(request, 0) == 0


# The next turn


def turn(tokens: int, generated: int, **change: Any) -> tuple[ConnectorScheduler, FakeRequest]:
    """A decode engine that keeps what it has for the next turn, and a request there that has ended."""
    made, request = scheduler(*change.pop("tables", (FULL,))), to_decode("d", tokens, held(tokens))
    made.next_turn = change.pop("next_turn", 30.0)
    made.arrived(request)
    made.allocated(request, ([1],) * 2, made.matched(request, 0))
    made.orders()
    request.generated = list(range(tokens, tokens + generated))
    request.num_computed_tokens = change.pop("computed", tokens + generated - 1)
    return made, request


def test_decode_keeps_what_it_loaded_and_generated_for_the_next_turn() -> None:
    made, request = turn(40, 16)
    kept, params = made.finished(request, ([7, 8], [1]), SERVED)
    assert params is not None
    assert (kept, params["do_remote_decode"], params["do_remote_prefill"]) == (True, True, False)
    assert (params["remote_num_tokens"], params["remote_block_ids"]) == (55, [[7, 8]])
    assert params["remote_blocks_expiry_time"] == pytest.approx(time.time() + 30, abs=5)
    prompt = prompt_digest(range(55))
    assert told(made).holds == (HoldOrder("d", 55, ((7, 8),), prompt, next_turn=True),)


def test_the_next_prefill_loads_it_and_is_held_for_decode_as_ever() -> None:
    made, request = turn(40, 16)
    _, params = made.finished(request, ([7, 8], [1]), SERVED)
    prefill, following = scheduler(), FakeRequest("p", 70, params)
    prefill.arrived(following)
    assert prefill.matched(following, 32) == 55 - 32
    prefill.allocated(following, ([1, 2, 3, 4, 5], [1]), 55 - 32)
    (load,) = told(prefill).loads
    assert (load.tokens, load.remote.request, load.remote.tokens) == ((32, 55), "d", 55)
    following.num_computed_tokens = 70
    kept, back = prefill.finished(following, ([1, 2, 3, 4, 5], [1]), SERVED)
    assert back is not None
    assert (kept, back["do_remote_prefill"], back["do_remote_decode"], back["remote_num_tokens"]) == (
        True, True, False, 70
    )  # fmt: skip
    assert "remote_blocks_expiry_time" not in back


@pytest.mark.parametrize(
    "change",
    [
        {"next_turn": 0.0},
        {"computed": 54},
        {"tables": (FULL, SLOTS), "computed": 56},
        {"tables": (FULL, GroupTable(1, 2, forgets=True))},
    ],
    ids=["not meant", "a token lacks", "a state is ahead", "a state among drafts"],
)
def test_nothing_is_kept_for_the_next_turn(change: dict[str, Any]) -> None:
    made, request = turn(40, 16, **change)
    assert made.finished(request, ([7, 8], [1]), SERVED) == (False, None)
    assert not made.orders().holds


# Requests that are handed over


def running(*, generated: int = 16, next_turn: float = 30.0, **more: Any) -> tuple[ConnectorScheduler, FakeRequest]:
    """A decode engine with a request that a router calls `t`, asked for 100 tokens, of which some are generated."""
    made = scheduler(FULL)
    made.next_turn = next_turn
    request = FakeRequest("d", 40, {"transfer_id": "t", **more}, max_tokens=100)
    made.arrived(request)
    request.generated, request.num_computed_tokens = list(range(40, 40 + generated)), 40 + generated - 1
    return made, request


def hand_over(made: ConnectorScheduler, *names: object) -> None:
    made.arrived(FakeRequest("any", 1, {"hand_over": list(names)}))


def one_more_token(request: FakeRequest) -> None:
    request.generated.append(99)
    request.num_computed_tokens += 1


def test_a_request_that_is_handed_over_ends_with_its_next_token_and_goes_on_elsewhere() -> None:
    made, request = running()
    hand_over(made, "t")
    assert request.max_tokens == 17
    one_more_token(request)
    kept, params = made.finished(request, ([7, 8], [1]), SERVED)
    assert params is not None
    assert (kept, params["do_remote_prefill"], params["do_remote_decode"]) == (True, True, False)
    assert (params["remote_num_tokens"], params["remote_block_ids"]) == (56, [[7, 8]])
    assert params["remote_blocks_expiry_time"] == pytest.approx(time.time() + 30, abs=5)
    (order,) = told(made).holds
    assert (order.request, order.held_name) == ("d", held_name("t", prompt_digest([*range(56), 99])))
    other, goes_on = scheduler(FULL), FakeRequest("e", 57, {**params, "transfer_id": "t"}, max_tokens=83)
    goes_on.prompt_token_ids = request.all_token_ids
    other.arrived(goes_on)
    assert other.matched(goes_on, 0) == 56


def test_an_engine_is_told_where_the_request_was_when_its_stream_said_nothing() -> None:
    """Streams of vLLM have no parameters: what the router knows names the same request."""
    made, request = running()
    hand_over(made, "t")
    one_more_token(request)
    made.finished(request, ([7, 8], [1]), SERVED)
    where = {"do_remote_prefill": True, "remote_host": "10.0.0.1", "remote_port": 7600}
    other, goes_on = scheduler(FULL), FakeRequest("e", 57, {**where, "transfer_id": "t"}, max_tokens=83)
    goes_on.prompt_token_ids = request.all_token_ids
    other.arrived(goes_on)
    assert other.matched(goes_on, 0) == 56
    other.allocated(goes_on, ([1, 2, 3, 4], [1]), 56)
    assert other.orders().loads[0].remote.held_name == made.orders().holds[0].held_name


def test_tokens_that_a_step_computes_already_come_first() -> None:
    made, request = running()
    request.num_output_placeholders = 1  # type: ignore[attr-defined]
    hand_over(made, "t")
    assert request.max_tokens == 18


def test_a_request_that_has_all_its_tokens_goes_on_nowhere() -> None:
    made, request = running(generated=99)
    hand_over(made, "t")
    assert request.max_tokens == 100
    one_more_token(request)
    assert made.finished(request, ([7, 8], [1]), SERVED) == (False, None)


def test_a_request_that_ends_by_itself_meanwhile_goes_on_nowhere() -> None:
    made, request = running()
    hand_over(made, "t")
    one_more_token(request)
    assert made.finished(request, ([7, 8], [1]), "FINISHED_STOPPED") == (False, None)


@pytest.mark.parametrize("names", [("u",), (), (1, None)])
def test_no_other_request_ends(names: tuple[object, ...]) -> None:
    made, request = running()
    hand_over(made, *names)
    assert request.max_tokens == 100


def test_an_engine_that_keeps_nothing_hands_nothing_over(caplog: pytest.LogCaptureFixture) -> None:
    made, request = running(next_turn=0.0)
    hand_over(made, "t")
    assert request.max_tokens == 100
    assert "bidirectional_kv_xfer" in caplog.text


def test_a_request_that_is_only_prefilled_here_is_not_handed_over() -> None:
    made, request = running(do_remote_decode=True)
    hand_over(made, "t")
    assert request.max_tokens == 100


def test_of_two_requests_of_a_name_the_later_one_is_handed_over() -> None:
    made, request = running()
    second = FakeRequest("e", 40, {"transfer_id": "t"}, max_tokens=100)
    made.arrived(second)
    made.finished(request, ([7], [1]), "FINISHED_ABORTED")
    hand_over(made, "t")
    assert (request.max_tokens, second.max_tokens) == (100, 1)


def test_what_is_computed_ahead_is_kept_with_tokens_alone() -> None:
    made, request = turn(40, 16, computed=56)
    _, params = made.finished(request, ([7, 8], [1]), SERVED)
    assert params is not None
    assert params["remote_num_tokens"] == 55


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"remote_blocks_expiry_time": 1.0}, "expired"),
        ({"remote_prompt": "0" * 32}, "another prompt"),
        ({"remote_blocks_expiry_time": "soon"}, "no held request"),
    ],
)
def test_a_turn_that_decode_does_not_have_is_prefilled_here(
    change: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    made, request = turn(40, 16)
    _, params = made.finished(request, ([7, 8], [1]), SERVED)
    prefill, following = scheduler(), FakeRequest("p", 70, {**(params or {}), **change})
    prefill.arrived(following)
    assert prefill.matched(following, 0) == 0
    assert why in caplog.text
    following.num_computed_tokens = 70
    assert prefill.finished(following, ([1], [1]), SERVED)[0]


def test_states_are_loaded_as_a_whole_or_not_at_all(caplog: pytest.LogCaptureFixture) -> None:
    """A prompt that ends before the state that decode kept, as where an answer is asked for once more."""
    caplog.set_level("INFO")
    made, request = turn(40, 16, tables=(FULL, SLOTS))
    made.registered([facts(groups=(TOKENS, STATE))])
    _, params = made.finished(request, ([7, 8], [1]), SERVED)
    for tokens, loaded in ((70, 55), (57, 55), (56, 0), (55, 0), (41, 0)):
        prefill, following = scheduler(FULL, SLOTS), FakeRequest("p", tokens, dict(params or {}))
        prefill.arrived(following)
        assert prefill.matched(following, 0) == loaded
        assert [order.tokens for order in prefill.orders().loads] == ([] if loaded else [(0, 0)])
