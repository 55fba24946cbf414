"""The hooks for SGLang's plugin loader: one more transfer backend, for releases that have these hooks."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from kvplan.integrations.sglang.legs import WHOLE_PROMPT
from kvplan.integrations.sglang.states import RoomState
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.runtime.ops import logs

NAME = "kvplan"
FLAG = "--disaggregation-transfer-backend"
# The hooked modules, classes and functions of the supported release.
GET_CLASS = "sglang.srt.disaggregation.utils.get_kv_class"
SENDER = "sglang.srt.disaggregation.prefill.PrefillBootstrapQueue.create_sender"
RECEIVER = "sglang.srt.disaggregation.decode.DecodePreallocQueue._create_receiver_and_enqueue"


def install() -> None:
    """Register the backend. Exits if hooks are missing and the command line asked SGLang for kvplan.

    SGLang only logs the errors of a plugin, and then calls the choice invalid.
    """
    try:
        _extend()
    except (ImportError, AttributeError) as error:
        failure = ConnectorError("I011", f"this release of SGLang lacks a hook that kvplan needs: {error}", HELP)
        if asked(sys.argv):
            raise SystemExit(str(failure)) from error
        logs.event(logs.WARNING, "plugin not registered", error=failure)


# SGLang's names of the states of a request, in kvplan's order.
STATES = ("Failed", "Bootstrapping", "WaitingForInput", "Transferring", "Success")
# Attributes of SGLang's queue of transfers: whether it keeps pages that another worker may still write, and how long.
DEFERRED = {"enable_deferred_kv_release": True, "deferred_kv_release_timeout": math.inf}
# The scheduler's stream of forwards: a running forward may still write pages that the scheduler freed.
FORWARDS = "forward_stream"
HELP = "install SGLang 0.5.23, or a release of kvplan that is made for yours"


def asked(words: Sequence[str]) -> bool:
    """Whether a command line chooses this backend."""
    pairs = zip(words, (*words[1:], ""), strict=True)
    return any(word == f"{FLAG}={NAME}" or (word, after) == (FLAG, NAME) for word, after in pairs)


def _extend() -> None:
    """Add a member of the enumeration, a choice, and hooks. Raises ImportError, AttributeError."""
    from sglang.srt.arg_groups.choices import add_disagg_transfer_backend_choices
    from sglang.srt.disaggregation import utils
    from sglang.srt.disaggregation.base.conn import KVPoll
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    backends: Any = utils.TransferBackend
    if not callable(utils.get_kv_class) or not callable(HookRegistry.register):
        raise AttributeError("get_kv_class or HookRegistry.register")
    for state, number in zip(STATES, RoomState, strict=True):
        if getattr(KVPoll, state) != number:
            raise AttributeError(f"KVPoll.{state} is {getattr(KVPoll, state)}, not {number.value}")
    if NAME not in backends._value2member_map_:
        member = object.__new__(backends)
        member._name_, member._value_ = NAME.upper(), NAME
        backends._member_map_[member._name_] = backends._value2member_map_[NAME] = member
        add_disagg_transfer_backend_choices([NAME])
    HookRegistry.register(GET_CLASS, kv_class, HookType.AROUND)
    HookRegistry.register(SENDER, sender_created, HookType.AFTER)
    HookRegistry.register(RECEIVER, receiver_created, HookType.AFTER)


def kv_class(original: Callable[..., Any], transfer_backend: Any, class_type: Any) -> Any:
    """Return SGLang's own class, or kvplan's for kvplan's backend."""
    if transfer_backend.value != NAME:
        return original(transfer_backend, class_type)
    from kvplan.integrations.sglang.backend import CLASSES

    return CLASSES.get(class_type.value) or original(transfer_backend, class_type)


def sender_created(result: Any, queue: Any, req: Any, *_: Any, **__: Any) -> None:
    """Give kvplan's sender its request's prompt, without the last token if decode computes that."""
    if _tell(req.disagg_kv_sender, req) and not wants_whole(req):
        leave_out_last(req)


def wants_whole(req: Any) -> bool:
    """Whether decode computes no token of the prompt, like SGLang's. Only a router of mixed pairs says otherwise."""
    given = req.sampling_params.custom_params
    return not isinstance(given, dict) or given.get(WHOLE_PROMPT) is not False


def leave_out_last(req: Any) -> None:
    """Make SGLang compute and hold a prompt without its last token, unless it is the only one."""
    if len(req.origin_input_ids) > 1:
        req.origin_input_ids = req.origin_input_ids[:-1]
        req.logprob_start_len = min(req.logprob_start_len, len(req.origin_input_ids))
        req.disagg_kv_sender.tell_length(len(req.origin_input_ids))


def receiver_created(result: Any, queue: Any, req: Any, *_: Any, **__: Any) -> None:
    """Give kvplan's receiver its request's prompt and the stream of forwards, and make SGLang keep written pages."""
    if _tell(result.kv_receiver, req):
        keep_until_settled(queue.transfer_queue)
        if not hasattr(queue.scheduler, FORWARDS):
            raise ConnectorError("I011", f"this release of SGLang's scheduler lacks {FORWARDS}", HELP)
        result.kv_receiver.forwards = getattr(queue.scheduler, FORWARDS)


def keep_until_settled(transfers: Any) -> None:
    """Make SGLang free the pages of a failed request only when no worker writes to them any more, without a time-out.

    By itself it frees them after a time-out, or at once if the environment says so. Raises ConnectorError (I011).
    """
    for name, value in DEFERRED.items():
        if not hasattr(transfers, name):
            raise ConnectorError("I011", f"this release of SGLang's decode queue lacks {name}", HELP)
        setattr(transfers, name, value)


def _tell(one: Any, req: Any) -> bool:
    """Give the prompt to a sender or receiver of kvplan's. Return whether it is one."""
    tell = getattr(one, "tell_prompt", None)
    if tell is not None:
        tell(req.origin_input_ids, getattr(req, "cache_salt", None) or "")
    return tell is not None
