"""All errors that the runtime raises on purpose, including those of `plan`: each has a permanent code and a remedy."""

from __future__ import annotations

from kvplan.plan.errors import BadRequestError as BadRequestError
from kvplan.plan.errors import BlockTableError as BlockTableError
from kvplan.plan.errors import DigestError as DigestError
from kvplan.plan.errors import KvplanError as KvplanError
from kvplan.plan.errors import PlanFormatError as PlanFormatError
from kvplan.plan.errors import PlanIndexError as PlanIndexError
from kvplan.plan.errors import PlanLoadError as PlanLoadError
from kvplan.plan.errors import PlanMissingError as PlanMissingError
from kvplan.plan.errors import PlanPendingError as PlanPendingError
from kvplan.plan.errors import PlanRemoteError as PlanRemoteError
from kvplan.plan.errors import PlanSignatureError as PlanSignatureError
from kvplan.plan.errors import RequestError as RequestError

# Exceptions that end a program. The caller's code (events, callbacks) may raise them through a poll. Anything else that
# this code raises, even asyncio.CancelledError, is a failure of that code alone.
EXITS = (KeyboardInterrupt, SystemExit)


def cause_text(cause: BaseException) -> str:
    """Return an error's text; the type is added unless the error is kvplan's own."""
    return str(cause) if isinstance(cause, KvplanError) else f"{type(cause).__name__}: {cause}"


class CacheMemoryError(KvplanError):
    """Cache memory has no address, strides that cannot be read, or is read-only where it is written.

    Pass memory in one of the forms that docs/runtime.md lists under Memory.
    """

    code = "R010"


class RegisterError(KvplanError):
    """Cache memory differs from the plan's side: a KV cache tensor is missing, or its shape or stride differs.

    The message has both values, and the order that the array's axes seem to have. Correct the engine's flags or the
    side's options, or compile the side that the engine has. If a worker has caches in host memory and others on a
    device, compile a side that declares it: `memory.NAME=host`.
    """

    code = "R011"


class AddressError(KvplanError):
    """An address or a length lies outside registered memory or the address space.

    Nothing was moved. If the message does not say what to do, this is a fault of kvplan or a hostile peer: report
    it, and find out who the peer is.
    """

    code = "R012"


class LimitError(KvplanError):
    """More descriptors than an int32 counts.

    Ask for fewer tokens in one request.
    """

    code = "R013"


class CardError(KvplanError):
    """A peer sent something truncated, corrupt, too large, or of another protocol.

    Find out what else speaks to this port, or answers at that address.
    """

    code = "R020"


class HandshakeError(KvplanError):
    """A peer did not answer before the deadline, or is not the worker that the plan names.

    Check that the engine is up and that its address (`host` and `port` of a connector) is reachable. Then connect
    again.
    """

    code = "R021"


class KeysError(KvplanError):
    """Keys cannot be read, or one of two peers lacks or refuses the other's key.

    Both engines need keys, or neither: put each one's NAME.key into the other's folder. The log has `key refused`
    and `key file ignored`.
    """

    code = "R022"


class OwnCardError(HandshakeError):
    """An engine was asked to connect to itself.

    Give the address of the other engine.
    """

    code = "R023"


class ReplayError(CardError):
    """A peer answered another question than the one asked: the answer was recorded, or is someone else's.

    Find out who else answers at that address.
    """

    code = "R024"


class StalePeerError(HandshakeError):
    """A peer has restarted, or has registered other memory, since this engine connected to it.

    Connect again, and retry. If the error returns, two engines have one name, or workers of one engine have
    different `run` values.
    """

    code = "R025"


class UnlikeError(HandshakeError):
    """Two engines have different models, revisions, per-tensor scales, or settings that must be equal.

    The message has both values. Start both engines with the same model, revision and settings, such as those of
    rotary embeddings and cache elements.
    """

    code = "R026"


class ProtocolError(CardError):
    """A peer speaks another version of the protocol. The message has both numbers.

    Update the older side: both sides of a pair need the same protocol.
    """

    code = "R027"


class NixlMissingError(KvplanError):
    """NIXL could not be imported. The message lists what was tried.

    Run `pip install --no-deps nixl nixl-cu12` (nixl-cu13 for CUDA 13). Without `--no-deps` pip also installs torch
    and CUDA, 6 GB.
    """

    code = "R030"


class TransportError(KvplanError):
    """The transport refused or failed an operation.

    Check the peer and the network, connect again if the peer is no longer connected, and retry.
    """

    code = "R031"


class PeerLostError(TransportError):
    """The connection to a peer is lost.

    Check whether its process has ended, and connect again.
    """

    code = "R032"


class HandleError(TransportError):
    """A handle or a worker is used after its release, twice, or in the wrong order.

    Correct the caller. The message says what must come first, such as `resume`, or that requests are still held.
    """

    code = "R033"


class NotBegunError(HandleError):
    """The transport refused a read before it began: nothing moves, and its blocks are free.

    Retry the request. For NIXL's reason set NIXL_LOG_LEVEL=WARN before it is imported.
    """

    code = "R034"


class MetricsMissingError(KvplanError):
    """prometheus-client cannot be imported. The message has the command that installs it."""

    code = "R035"


class MetricsAddressError(KvplanError):
    """The address for metrics and health is in use, or not of this machine.

    Choose another port or host.
    """

    code = "R036"


class QuarantinedError(RequestError):
    """Another transfer may still write a block of the request.

    Use other blocks, or retry later. If a peer hangs, end its processes, then call `drop(peer, dead=True)`
    (docs/runtime.md#quarantine).
    """

    code = "R042"


class DeadlineError(RequestError):
    """The transfer timed out: it did not end before its deadline.

    The message says what each prefill worker still owed. If one has not confirmed that it holds all of the request,
    the tokens are not computed yet: give slow prefill more time. If bytes are still on their way and all is computed,
    check the network. A retry is safe (docs/runtime.md#failures).
    """

    code = "R043"


class TransferError(RequestError):
    """A read or write of the transfer failed; the cause is chained.

    Check the peer and the network, and connect again if the peer is no longer connected. A retry is safe
    (docs/runtime.md#failures).
    """

    code = "R044"


class CancelledTransferError(RequestError):
    """The caller cancelled the transfer.

    No action is needed.
    """

    code = "R045"


class LeaseError(RequestError):
    """A prefill worker did not hold the request, held it for less than the whole read, or accepts no more claims.

    The message says why: its lease ended, it took longer than decode's `hold_s`, prefill restarted or withdrew it,
    another engine or try has read it, it was held again, or too much is claimed. docs/runtime.md#when-a-hold-ends has
    the rules.
    """

    code = "R046"


class ChecksumError(RequestError):
    """The bytes that arrived differ from those that prefill holds. The message names the first such layer.

    Serve nothing of this request, stop the pair, keep the log, and report it (docs/runtime.md#checksums).
    """

    code = "R047"


class WithdrawnError(RequestError):
    """The prefill engine withdrew the request, or drains and does not hold it.

    Ask another engine, or compute the request on decode (docs/runtime.md#when-a-hold-ends).
    """

    code = "R048"


class LimitedError(RequestError):
    """More requests are in progress than the worker's limits allow.

    Wait until some have ended, or raise `Limits.requests`. On prefill call `released()` in each step: what it has
    not returned yet counts (docs/runtime.md#limits-and-fairness).
    """

    code = "R049"


class PhaseError(RequestError):
    """A transfer or a write received an event that is impossible in its phase: a fault of kvplan.

    Report it, with the log.
    """

    code = "R050"


class DrainingError(RequestError):
    """The worker drains before it is stopped: it accepts nothing new, and ends what outlasts the deadline.

    Ask another engine, or compute the request on decode (docs/runtime.md#drain).
    """

    code = "R051"


class NoteError(RequestError):
    """A request arrived without a readable note, so decode lacks its first token.

    Install one release of kvplan on both engines. If both have it, report it, with the log.
    """

    code = "R052"


BY_CODE = {
    kind.code: kind for kind in list(vars().values()) if isinstance(kind, type) and issubclass(kind, KvplanError)
}
