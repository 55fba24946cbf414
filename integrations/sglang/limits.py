"""Features of SGLang that the connector does not support, and what to do instead. An engine with one does not start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kvplan.integrations.shared.errors import ConnectorError

# SGLang's word for the component of recurrent states.
STATES = "mamba"
UNKNOWN = "use a model or settings without it, or another transfer backend"
ONE_EACH = (
    "start one engine for each rank, with a --port and a --disaggregation-bootstrap-port of its own, and name all of "
    "them to the router"
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A setting or component that an engine is started with, and what to do instead."""

    what: str
    help: str


# State components with advice of their own, by SGLang's word.
COMPONENTS = {
    "swa": Limit(
        "a window pool of its own (swa)",
        "give both engines --disable-hybrid-swa-memory if all layers of the model have as many KV heads of one size",
    ),
    "dsa": Limit("keys of sparse attention (dsa)", "serve this model with another transfer backend"),
}


def check(arguments: Any, kv: Any, parallel: Any) -> None:
    """Check ServerArgs, KVArgs and the parallel sizes of a worker. Raises ConnectorError (I012)."""
    _refuse("SGLang is started with", _started_with(arguments, kv, parallel))
    _refuse("SGLang keeps beside its pages", _unsupported(components(kv)))


def components(kv: Any) -> tuple[str, ...]:
    """Return SGLang's words for the components of states that KVArgs lists."""
    return tuple(str(getattr(kind, "value", kind)) for kind in kv.state_types)


def _unsupported(names: Iterable[str]) -> Iterator[Limit]:
    """Yield the components that the connector does not move."""
    for name in names:
        if name != STATES:
            yield COMPONENTS.get(name, Limit(name, UNKNOWN))


def _started_with(arguments: Any, kv: Any, parallel: Any) -> Iterator[Limit]:
    decodes = arguments.disaggregation_mode == "decode"
    if arguments.dp_size > 1:
        yield Limit("data parallel workers (--dp-size)", ONE_EACH)
    if parallel.attn_dp_size > 1:
        yield Limit("data parallel attention (--attn-dp-size)", "leave it out: --tp-size then shares attention, too")
    if decodes and parallel.pp_size > 1:
        # One stage may fail a request that arrives on the others, and SGLang's stages would run different batches.
        yield Limit(
            "pipeline parallel workers that decode (--pp-size)", "give --tp-size instead; prefill may have stages"
        )
    if parallel.attn_cp_size > 1 or arguments.dcp_size > 1:
        yield Limit("context parallel workers (--attn-cp-size, --dcp-size)", "give --tp-size instead")
    if kv.num_draft_entries > 0:
        yield Limit("draft layers (--speculative-algorithm)", "leave it out on both engines")
    if arguments.enable_pd_role_switch:
        yield Limit("role switches (--enable-pd-role-switch)", "leave it out: start the engine again in its other role")
    if arguments.enable_hisparse:
        yield Limit("hierarchical sparse attention (--enable-hisparse)", "leave it out")


def _refuse(what: str, limits: Iterable[Limit]) -> None:
    named = [*limits]
    if named:
        text = f"{what} {', '.join(limit.what for limit in named)}: kvplan does not support that"
        raise ConnectorError("I012", text, "; ".join(dict.fromkeys(limit.help for limit in named)))
