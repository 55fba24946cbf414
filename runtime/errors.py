"""Every error the runtime raises on purpose, those of `plan` among them: a permanent code each, and what to do."""

from __future__ import annotations

import re

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

# A host, with a port or without one, up to the path: an @ that follows is in the path.
HOST = r"(?:\[[^\]\s]*\]|[^/?#\s:@\[\]]*)(?::\d{1,5})?(?:[/?#\s]|$)"
# A user, or a user and a secret, in which / ? # and @ may stand unescaped: what is no port is taken for a secret, which
# ends with the last @, be it one of the path.
CREDENTIALS = re.compile(rf"://(?!{HOST})(?:[^/?#\s:]*:\S*@|[^/?#\s]*@)")
HIDDEN = "://…@"


# What ends a program. A caller's code, such as an event or a callback, may raise it through a poll. Whatever else that
# code raises, asyncio.CancelledError too, is a failure of that code alone.
EXITS = (KeyboardInterrupt, SystemExit)


def cause_text(cause: BaseException) -> str:
    """What went wrong, as text: our own errors say it, of others the type is told, too."""
    return str(cause) if isinstance(cause, KvplanError) else f"{type(cause).__name__}: {cause}"


def without_credentials(text: str) -> str:
    """A text in which no URL has its user and password: these are for whoever is asked, not for messages and logs."""
    return CREDENTIALS.sub(HIDDEN, text)


class CacheMemoryError(KvplanError):
    """Cache memory cannot be used as it is: no address, strides that cannot be read, read-only where it is written.

    Pass memory of one of the forms that docs/runtime.md lists under Memory.
    """

    code = "R010"


class RegisterError(KvplanError):
    """Cache memory is not as the plan's side says: a plane is missing, or its shape or stride differs.

    The message has both values. It also says which order an array's axes seem to have, if their extents show it, and
    which planes there are. Correct the engine's flags or the side's options, or compile the side that the engine has.
    """

    code = "R011"


class AddressError(KvplanError):
    """An address or a length would leave its registered memory or the address space.

    Nothing was moved. Where the message does not say what to do, it is a fault of kvplan or a hostile peer: report it,
    and find out who the peer is.
    """

    code = "R012"


class LimitError(KvplanError):
    """More descriptors than an int32 counts.

    Ask for fewer tokens in one request.
    """

    code = "R013"


class CardError(KvplanError):
    """What a peer sent is truncated, corrupt, too large, or not of this protocol.

    Look for what else speaks to this port, or answers at that address.
    """

    code = "R020"


class HandshakeError(KvplanError):
    """A peer did not answer before the deadline, or is not the worker that the plan names.

    Is the engine up, and does its address (`host` and `port` of a connector) reach it? Then connect again, and retry.
    """

    code = "R021"


class KeysError(KvplanError):
    """Keys cannot be used, or a peer does not have, or does not accept, the key that was given.

    Both engines need keys, or neither: put each one's NAME.key into the other's folder. The log has `key refused` and
    `key file ignored`.
    """

    code = "R022"


class OwnCardError(HandshakeError):
    """An engine was asked to meet itself.

    Give the address of the other engine.
    """

    code = "R023"


class ReplayError(CardError):
    """A card answers another question than the one that was asked: it was recorded, or belongs to someone else.

    Look for who else answers at that address.
    """

    code = "R024"


class StalePeerError(HandshakeError):
    """A peer has restarted, or its registration has changed, since it was met.

    After a restart connect again, and retry. If it comes back, two engines have one name, or the workers of one engine
    were given unlike `run`.
    """

    code = "R025"


class UnlikeError(HandshakeError):
    """Two engines run different models, revisions, per-tensor scales, or settings that have to be equal.

    The message has both values. Start both engines with the same model, the same revision of its weights and the same
    settings, such as those of rotary embeddings and the elements of caches.
    """

    code = "R026"


class ProtocolError(CardError):
    """A peer speaks another version of the protocol; the message has both numbers.

    Update the older side: both sides of a pair run releases with the same protocol.
    """

    code = "R027"


class NixlMissingError(KvplanError):
    """No usable NIXL could be imported; the message lists what was tried.

    Install it with `pip install --no-deps nixl nixl-cu12` (nixl-cu13 for CUDA 13). Without `--no-deps` pip also brings
    torch and CUDA, 6 GB, unless they are there.
    """

    code = "R030"


class TransportError(KvplanError):
    """The transport refused or failed an operation.

    Look at the peer and the network, connect again where the peer is not connected any more, and retry.
    """

    code = "R031"


class PeerLostError(TransportError):
    """The connection to a peer is gone: connect again, its memory must be met anew.

    Look at whether its process has ended.
    """

    code = "R032"


class HandleError(TransportError):
    """A transfer handle is used after its release, twice, or with another agent than its own.

    Correct the caller: the message says what has to come first, such as `resume`, or that requests are still held.
    """

    code = "R033"


class NotBegunError(HandleError):
    """The transport refused a read before it began: nothing of it moves, and its blocks are free.

    Retry the request. NIXL says why only if NIXL_LOG_LEVEL=WARN was set before it was imported.
    """

    code = "R034"


class MetricsMissingError(KvplanError):
    """prometheus-client cannot be imported; the message has the command that installs it."""

    code = "R035"


class MetricsAddressError(KvplanError):
    """The address for metrics and health is taken, or is none of this machine.

    Choose another port or host.
    """

    code = "R036"


class QuarantinedError(RequestError):
    """A block of the request may still be written by another transfer.

    Use other blocks, or retry later. If a peer hangs, end its processes, then call `drop(peer, dead=True)`.
    """

    code = "R042"


class DeadlineError(RequestError):
    """The transfer did not end before its deadline.

    The message says what was missing of each prefill worker. If it has not confirmed that it holds all of the request,
    its tokens are not computed yet: give slow prefill more time. If bytes are still on their way, look at the network.
    A retry is safe.
    """

    code = "R043"


class TransferError(RequestError):
    """A read of the transfer failed; the cause is chained.

    Look at the peer and the network, connect again where the peer is not connected any more, and retry: a retry is
    safe.
    """

    code = "R044"


class CancelledTransferError(RequestError):
    """The caller cancelled the transfer.

    There is nothing to do.
    """

    code = "R045"


class LeaseError(RequestError):
    """A prefill worker did not hold the request's blocks from before the first read until after the last.

    Decode asked after the lease had ended, was silent for a lease, or named another hold of this id. Make the lease
    (`lease`, or `lease_s` of a connector) longer than the longest wait in decode's queue, poll decode workers all the
    time, and look for requests that a router drops. Then hold the request anew and retry.
    """

    code = "R046"


class ChecksumError(RequestError):
    """What arrived differs from what the prefill worker holds; the first layer that differs is named.

    Bytes are wrong: serve none of this request, stop the pair, keep the log, and report it.
    """

    code = "R047"


class WithdrawnError(RequestError):
    """The prefill engine gave the request up.

    Ask another engine, or compute the request on decode.
    """

    code = "R048"


class LimitedError(RequestError):
    """More requests are under way than the worker's limits allow.

    Wait until some have ended, or raise `Limits.requests`. On prefill, take `released()` in each step: what was not
    taken counts, too.
    """

    code = "R049"


class PhaseError(RequestError):
    """Something happened to a transfer, a pin or a write that has no place in its phase: a fault of kvplan's own.

    Report it, with the log.
    """

    code = "R050"


class DrainingError(RequestError):
    """The worker drains before it is stopped: it takes nothing new, and has ended what lasted beyond the deadline.

    Ask another engine, or compute the request on decode.
    """

    code = "R051"


class NoteError(RequestError):
    """A request arrived without a note that decode can read, so that its first token is not known.

    Install one release of kvplan on both engines. If both have it, report it, with the log.
    """

    code = "R052"


BY_CODE = {
    kind.code: kind for kind in list(vars().values()) if isinstance(kind, type) and issubclass(kind, KvplanError)
}
