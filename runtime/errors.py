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


def cause_text(cause: BaseException) -> str:
    """What went wrong, as text: our own errors say it, of others the type is told, too."""
    return str(cause) if isinstance(cause, KvplanError) else f"{type(cause).__name__}: {cause}"


def without_credentials(text: str) -> str:
    """A text in which no URL has its user and password: these are for whoever is asked, not for messages and logs."""
    return CREDENTIALS.sub("://…@", text)


class FleetError(KvplanError):
    """Engines of a fleet cannot be asked for, or what is kept of one is no record."""

    code = "R070"


class CacheMemoryError(KvplanError):
    """Cache memory cannot be used as it is: no address, strides that cannot be read, read-only where it is written."""

    code = "R010"


class RegisterError(KvplanError):
    """Cache memory is not as the plan's side says: a plane is missing, or its shape or stride differs."""

    code = "R011"


class AddressError(KvplanError):
    """An address or a length would leave its registered memory or the address space."""

    code = "R012"


class LimitError(KvplanError):
    """More descriptors than an int32 counts."""

    code = "R013"


class CardError(KvplanError):
    """What a peer sent is truncated, corrupt, too large, or not of this protocol."""

    code = "R020"


class HandshakeError(KvplanError):
    """A peer did not answer before the deadline, or is not the worker that the plan names."""

    code = "R021"


class KeysError(KvplanError):
    """Keys cannot be used, or a peer does not have, or does not accept, the key that was given."""

    code = "R022"


class OwnCardError(HandshakeError):
    """An engine was asked to meet itself."""

    code = "R023"


class ReplayError(CardError):
    """A card answers another question than the one that was asked: it was recorded, or belongs to someone else."""

    code = "R024"


class StalePeerError(HandshakeError):
    """A peer has restarted, or its registration has changed, since it was met."""

    code = "R025"


class UnlikeError(HandshakeError):
    """Two engines run unlike models, revisions of a model, or per-tensor scales."""

    code = "R026"


class ProtocolError(CardError):
    """A peer speaks another version of the protocol; the message has both numbers."""

    code = "R027"


class NixlMissingError(KvplanError):
    """No usable NIXL could be imported; the message lists what was tried."""

    code = "R030"


class TransportError(KvplanError):
    """The transport refused or failed an operation."""

    code = "R031"


class PeerLostError(TransportError):
    """The connection to a peer is gone: connect again, its memory must be met anew."""

    code = "R032"


class HandleError(TransportError):
    """A transfer handle is used after its release, twice, or with another agent than its own."""

    code = "R033"


class NotBegunError(HandleError):
    """The transport refused a read before it began: nothing of it moves, and its blocks are free."""

    code = "R034"


class MetricsMissingError(KvplanError):
    """prometheus-client cannot be imported; the message has the command that installs it."""

    code = "R035"


class MetricsAddressError(KvplanError):
    """The address for metrics and health is taken, or is none of this machine."""

    code = "R036"


class QuarantinedError(RequestError):
    """A block of the request may still be written by another transfer."""

    code = "R042"


class DeadlineError(RequestError):
    """The transfer did not end before its deadline."""

    code = "R043"


class TransferError(RequestError):
    """A read of the transfer failed; the cause is chained."""

    code = "R044"


class CancelledTransferError(RequestError):
    """The caller cancelled the transfer."""

    code = "R045"


class LeaseError(RequestError):
    """A prefill worker did not hold the request's blocks from before the first read until after the last."""

    code = "R046"


class ChecksumError(RequestError):
    """What arrived differs from what the prefill worker holds; the first layer that differs is named."""

    code = "R047"


class WithdrawnError(RequestError):
    """The prefill engine gave the request up."""

    code = "R048"


class LimitedError(RequestError):
    """More requests are under way than the worker's limits allow."""

    code = "R049"


class PhaseError(RequestError):
    """Something happened to a transfer, a pin or a write that has no place in its phase: a fault of kvplan's own."""

    code = "R050"


class DrainingError(RequestError):
    """The worker drains before it is stopped: it takes nothing new, and has ended what lasted beyond the deadline."""

    code = "R051"


class StoreError(KvplanError):
    """Base of what is wrong with stored caches."""

    code = "R060"


class DamagedObjectError(StoreError):
    """An object of a store is not as it was written: cut off, or with other bytes. It is never loaded; remove it."""

    code = "R061"


class ForeignObjectError(StoreError):
    """A file among a store's objects is none of them, or another one than its name says. It is never loaded."""

    code = "R062"


class MissingObjectError(StoreError):
    """A block is not in the store, or not with all the tokens that are needed: it was not saved, or it was evicted."""

    code = "R063"


class StoreSideError(StoreError):
    """Neither side of a plan, or not the one that is asked for, can be stored."""

    code = "R064"


class StoreKeyError(StoreError):
    """A key is none, or keys do not fit a request."""

    code = "R065"


class StoreIndexError(StoreError):
    """The index of a store cannot be opened or written."""

    code = "R066"


class StoreFileError(StoreError):
    """A store's file cannot be opened, read or written: the disk is full, it is another's, too many are open, or the
    place at its URL refuses or does not answer."""

    code = "R067"


BY_CODE = {
    kind.code: kind for kind in list(vars().values()) if isinstance(kind, type) and issubclass(kind, KvplanError)
}
