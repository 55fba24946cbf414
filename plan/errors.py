"""The root of all errors raised on purpose, and those of plans and requests: a permanent code each, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class RequestFault(StrEnum):
    """What may be wrong with a request, by the permanent code that the compiler's commands say it with."""

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

    `again` says that asking once more, later, may help by itself.
    """

    code = "R000"
    again = False


class PlanFormatError(KvplanError):
    """A plan is of another format version, not of the closed form, or was changed: a digest or a number is wrong.

    Compile the plan again with the release of kvplan that the engines run, and do not edit plans by hand.
    """

    code = "R001"


class BlockTableError(KvplanError):
    """A block table does not hold what a request needs: too short, null where tokens are, or out of range.

    Correct the caller: each position whose tokens are needed has a block id, and ids lie inside the pool.
    """

    code = "R002"

    def __init__(self, message: str, fault: RequestFault = RequestFault.MISSING_BLOCK) -> None:
        super().__init__(message)
        self.fault = fault


class PlanLoadError(KvplanError):
    """A file is no Python file, or cannot be read.

    Check the path and its permissions; the file has to be a plan as `kvplan compile` wrote it.
    """

    code = "R003"


class DigestError(KvplanError):
    """Two peers, or a peer and a plan, do not mean the same model, side or plan.

    Give both engines the same plans directory. While a new index is being rolled out, connect again later. If it stays,
    the engines run plans of unlike layouts, sides or options: compile them from the same files.
    """

    code = "R004"


class PlanMissingError(DigestError):
    """No plan for this pair of sides is in the plans directory; the message has the command that makes it.

    Run that command where both engines read their plans, then connect again, or start the engine that has stopped.
    `Jit` of a catalog, or `"jit": true` of a connector, runs it by itself.
    """

    code = "R005"


class PlanIndexError(KvplanError):
    """The index of a plans directory is missing, damaged, not to be written, or pins another text than a plan has.

    Find out who wrote in the directory, then compile the plans again, or pull them.
    """

    code = "R006"


class PlanPendingError(PlanMissingError):
    """The plan for a pair is being compiled: ask again."""

    code = "R007"
    again = True


class PlanSignatureError(KvplanError):
    """Plans at a URL are not what a trusted key signed for it: altered, of another key or place, or an older index.

    Find out who wrote to the URL, or whether the signing key was changed; then push again. For a mirror, give the place
    that the index was signed for. Engines that run go on with the plans that they have.
    """

    code = "R008"


class PlanRemoteError(KvplanError):
    """A URL of plans does not answer, refuses, has not what its index names, or its protocol is not installed.

    What was pulled before is used meanwhile. Check the URL, its credentials and the network, or install what the
    message names.
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
    """The request does not fit the plan: unknown or missing group, ids out of range or repeated, unlike states.

    Correct the caller; the message names the group, and what of it does not fit.
    """

    code = "R041"

    # What is wrong, where the compiler's commands, which read requests from files, have a code for it.
    def __init__(self, message: str, fault: RequestFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault
