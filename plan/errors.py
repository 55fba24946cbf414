"""The root of all deliberate errors, and those of plans and requests: a permanent code each, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RequestFault(StrEnum):
    """The faults of a request, by the permanent codes that the compiler's commands report."""

    UNKNOWN_GROUP = "Q007"
    MISSING_GROUP = "Q008"
    OTHER_TABLE = "Q009"
    STANDS_ELSEWHERE = "Q010"
    MISSING_BLOCK = "Q011"
    OUT_OF_POOL = "Q012"
    REPEATED_BLOCK = "Q013"
    UNKNOWN_LENGTH = "Q014"
    MISSING_LENGTH = "Q015"
    RING_SIZE = "Q016"
    OVERWRITTEN = "Q017"


class KvplanError(Exception):
    """Base of all runtime errors. `code` is permanent and listed in docs/errors.md.

    `again` says that asking again later may help.
    """

    code = "R000"
    again = False


class PlanFormatError(KvplanError):
    """The plan has another format version, was edited, or a digest or number in it is wrong.

    Compile it with the release of kvplan that the engines run. Do not edit plans by hand.
    """

    code = "R001"

    def __init__(self, message: str, format: int | None = None) -> None:
        """`format` is the plan's own version if this kvplan reads another one."""
        super().__init__(message)
        self.format = format


class BlockTableError(KvplanError):
    """A block table lacks what a request needs: it is too short, null where tokens are, or out of range.

    Correct the caller: each position with needed tokens has a block id inside the pool.
    """

    code = "R002"

    def __init__(self, message: str, fault: RequestFault = RequestFault.MISSING_BLOCK) -> None:
        super().__init__(message)
        self.fault = fault


class PlanLoadError(KvplanError):
    """A plan file is not Python or cannot be read.

    Check the path and its permissions. The file must be a plan as `kvplan compile` wrote it.
    """

    code = "R003"


class DigestError(KvplanError):
    """Two peers, or a peer and a plan, have different models, sides or plans.

    Give both engines the same plans directory, compiled from the same layout files. During a rollout of plans,
    connect again later.
    """

    code = "R004"


class PlanMissingError(DigestError):
    """The plans directory has no plan for this pair of sides. The message has the command that makes it.

    Run it where both engines read their plans, then connect again, or start the engine that stopped. `Jit` of a
    catalog, or a connector without `plans`, compiles plans by itself.
    """

    code = "R005"


class PlanIndexError(KvplanError):
    """The index of a plans directory is missing, damaged or not writable, or a plan differs from it.

    Find out who wrote to the directory. After a merge conflict remove its `index.json`. Then `kvplan compile
    DEPLOYMENT -o DIRECTORY`, or pull the plans again.
    """

    code = "R006"


class PlanPendingError(PlanMissingError):
    """The plan for a pair is being compiled: ask again."""

    code = "R007"
    again = True


class PlanSignatureError(KvplanError):
    """Plans at a URL are altered, older than before, or signed by another key or for another place.

    Find out who wrote to the URL, or whether the signing key changed; then push again. For a mirror, give the place
    that the index was signed for. Running engines keep the plans that they have.
    """

    code = "R008"


class PlanRemoteError(KvplanError):
    """A URL of plans does not answer, refuses, lacks a file of its index, or its protocol is not installed.

    Engines use what they pulled before. Check the URL, its credentials and the network, or install what the message
    names.
    """

    code = "R009"
    again = True


class RequestError(KvplanError):
    """Base of what ends one request. `untrusted` are the decode block ids, by group, that may hold anything."""

    code = "R040"

    def __init__(self, message: str, untrusted: Mapping[str, tuple[int, ...]] | None = None) -> None:
        super().__init__(message)
        self.untrusted = dict(untrusted or {})


class BadRequestError(RequestError):
    """The request does not fit the plan, or an argument, such as a lease, has no valid value.

    Correct the caller. The message names the group or the argument.
    """

    code = "R041"

    # `fault` is set if the compiler's commands, which read requests from files, have a code for it.
    def __init__(self, message: str, fault: RequestFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault
