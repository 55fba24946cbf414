"""SGLang's interface for transfer backends, passed on to requests that the runtime moves."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import torch
from sglang.srt.disaggregation.base import BaseKVBootstrapServer, BaseKVManager, BaseKVReceiver, BaseKVSender
from sglang.srt.disaggregation.base.conn import KVTransferDestination, KVTransferMetric
from sglang.srt.disaggregation.utils import DisaggregationMode
from sglang.srt.runtime_context import get_disagg, get_parallel

from kvplan.integrations.sglang import bootstrap
from kvplan.integrations.sglang.bootstrap import PrefillRecord
from kvplan.integrations.sglang.facts import aux_rows, engine_buffers, engine_facts, engine_run
from kvplan.integrations.sglang.layout import worker_layout
from kvplan.integrations.sglang.requests import ReceivedRequest, SentRequest
from kvplan.integrations.sglang.setup import decode_requests, given_config, prefill_requests
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.served import served_revision
from kvplan.plan.errors import KvplanError
from kvplan.runtime.control.identity import Identity
from kvplan.runtime.ops import logs

# Seconds in which SGLang begins to serve at the bootstrap port, after its workers have loaded the model.
SERVED_S = 600.0
# The local address of a service that listens everywhere.
LOCAL = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}


class KvplanManager(BaseKVManager):  # type: ignore[misc]
    """One worker's half: its memory compared and registered, and its requests."""

    enable_staging = is_dummy_cp_rank = enable_all_cp_ranks_for_transfer = False
    supports_deferred_decode_kv_release = enable_deferred_decode_kv_release = True

    def __init__(self, args: Any, disaggregation_mode: Any, server_args: Any, *_: object) -> None:
        """Raises ConnectorError or KvplanError, which stop the engine."""
        self.kv_args, self.server_args = args, server_args
        self.on_device = server_args.device != "cpu"
        # SGLang reads these. A prefill engine is one group of workers, whose topology the handshake compares.
        self.prefill_info_table: dict[str, Any] = {}
        self.transfer_infos: dict[int, Any] = {}
        self.receivers: set[KvplanReceiver] = set()
        config, facts = given_config(), engine_facts(server_args, args)
        layout = worker_layout(config, facts, engine_buffers(server_args, args))
        prefills = disaggregation_mode == DisaggregationMode.PREFILL
        if layout.windows and not prefills and get_disagg().disaggregation_decode_enable_radix_cache:
            help = "leave --disaggregation-decode-enable-radix-cache out"
            what = f"{layout.model} has sliding windows: decode's radix cache would serve pages that were never filled"
            raise ConnectorError("I012", what, help)
        weights = f"{server_args.model_path} {server_args.revision or ''}"
        revision = config.revision or served_revision(facts.config, weights)
        kind, port = ("prefill" if prefills else "decode"), server_args.port
        engine = Identity(f"sglang-{kind}-{port}", engine_run(kind, port), revision)
        if prefills:
            self._keys = config.secrets()
            self.held, self._record = prefill_requests(config, layout, engine, aux_rows(args), _all_records)
            if layout.worker == 0:
                self.register_to_bootstrap()
        else:
            self.receiving = decode_requests(config, layout, engine, aux_rows(args))

    def register_to_bootstrap(self) -> None:
        """Register this engine's address once SGLang serves at its bootstrap port."""
        threading.Thread(target=self._register, name="kvplan-register", daemon=True).start()

    def _register(self) -> None:
        host = LOCAL.get(self.server_args.host, self.server_args.host)
        where = f"{host}:{get_disagg().disaggregation_bootstrap_port}"
        try:
            bootstrap.register(where, self._record, SERVED_S, self._keys)
        except KvplanError as error:
            logs.event(logs.WARNING, "prefill not registered", error=error)

    def try_ensure_parallel_info(self, bootstrap_addr: str) -> bool:
        """Record a prefill engine's topology as known, because a receiver meets the engine itself."""
        self.prefill_info_table.setdefault(
            bootstrap_addr,
            SimpleNamespace(dp_size=1, follow_bootstrap_room=False, attn_tp_size=1, prefill_http_port=None),
        )
        return True

    def submit_prefill_recompute(self, receiver: KvplanReceiver, payload: object) -> None:
        """Fail a retracted request: prefill is not asked to compute it again."""
        receiver.abort()

    def is_abort_release_safe(self, room: int, required_acks: int) -> bool:
        """Whether nothing can write to the pages of an aborted request, or of another one that had its room."""
        return all(one.request.settled for one in self.receivers if one.bootstrap_room == room)

    def clear_deferred_abort_state(self, room: int) -> None:
        """Do nothing: SGLang calls the receiver's `clear` next."""


class KvplanSender(BaseKVSender):  # type: ignore[misc]
    """One request on a prefill worker."""

    # SGLang stores an event here that follows the writes of a cached prefix.
    _early_send_wait_event: Any = None

    def __init__(
        self, mgr: Any, bootstrap_addr: str, bootstrap_room: int, req_has_disagg_prefill_dp_rank: bool = False
    ) -> None:
        self.kv_mgr, self._last = mgr, False
        self.request = SentRequest(mgr.held, bootstrap_room)
        self.tell_prompt, self.tell_length = self.request.tell_prompt, self.request.tell_length

    def init(self, num_kv_indices: int, aux_index: int | None = None) -> None:
        self.request.begin(aux_index or 0)

    def should_send_kv_chunk(self, num_pages: int, last_chunk: bool) -> bool:
        """Note whether the chunk of the next `send` is the last: `send` does not know it."""
        self._last = last_chunk
        return num_pages > 0 or last_chunk

    def send(self, kv_indices: Any, state_indices: list[Any] | None = None, num_kv_tokens: int | None = None) -> None:
        tokens = num_kv_tokens if num_kv_tokens is not None else len(kv_indices) * self.kv_mgr.kv_args.page_size
        after, self._early_send_wait_event = self._early_send_wait_event, None
        self.request.offer(kv_indices, state_indices, tokens, last=self._last, after=after)

    def poll(self) -> int:
        return int(self.request.poll())

    poll_pp_consensus = poll

    def get_transfer_metric(self) -> Any:
        return KVTransferMetric()

    def failure_exception(self) -> None:
        raise self.request.error or RuntimeError("another worker's part of the request failed")

    def abort(self) -> None:
        self.request.abort()


class KvplanReceiver(BaseKVReceiver):  # type: ignore[misc]
    """One request on a decode worker."""

    require_staging = False

    def __init__(self, mgr: Any, bootstrap_addr: str, bootstrap_room: int | None = None) -> None:
        self.kv_mgr, self.bootstrap_room = mgr, bootstrap_room or 0
        self.bootstrap_infos: list[Any] = []
        self.request = ReceivedRequest(mgr.receiving, bootstrap_addr, self.bootstrap_room)
        self.tell_prompt = self.request.tell_prompt
        # The stream of SGLang's forwards, which the plugin sets. On a CPU a forward has ended when it returns.
        self.forwards: Any = None

    @property
    def conclude_state(self) -> int | None:
        """Failed or Success once the request is over."""
        state = self.request.state
        return int(state) if state in (state.FAILED, state.SUCCESS) else None

    def init(self, prefill_dp_rank: int) -> None:
        self.request.begin()

    def send_metadata(
        self,
        kv_indices: Any,
        aux_index: int | None = None,
        state_indices: list[Any] | None = None,
        decode_prefix_len: int | None = None,
        destination: Any = KVTransferDestination.DEVICE,
    ) -> None:
        self.kv_mgr.receivers.add(self)
        after = None
        if self.forwards is not None and self.kv_mgr.on_device:
            after = torch.cuda.Event()
            after.record(self.forwards)
        self.request.receive(kv_indices, state_indices, decode_prefix_len or 0, aux_index or 0, after)

    def poll(self) -> int:
        return int(self.request.poll())

    poll_pp_consensus = poll

    @property
    def abort_notified(self) -> bool:
        """Whether SGLang has to hold the pages of this request, which failed on another worker, until they settle."""
        return not self.request.settled

    def ensure_abort_notified(self, force_arm: bool = False) -> None:
        self.request.abort()

    def failure_exception(self) -> None:
        raise self.request.error or RuntimeError("another worker's part of the request failed")

    def abort(self) -> None:
        self.request.abort()

    def clear(self) -> None:
        self.kv_mgr.receivers.discard(self)
        self.request.close()


class KvplanBootstrapServer(BaseKVBootstrapServer):  # type: ignore[misc]
    """The service that gives decode engines this prefill engine's address."""

    def __init__(self, host: str, port: int) -> None:
        self._service = bootstrap.Bootstrap(host, port, given_config().secrets())


def _all_records(record: PrefillRecord) -> list[PrefillRecord]:
    """Return the records of all workers of this engine, by rank."""
    world = get_parallel().world_group
    records: list[Any] = [None] * world.world_size
    torch.distributed.all_gather_object(records, record, group=world.cpu_group)
    return records


CLASSES = {
    "manager": KvplanManager,
    "sender": KvplanSender,
    "receiver": KvplanReceiver,
    "bootstrap_server": KvplanBootstrapServer,
}
