"""Errors of a fleet: each has a permanent code and a remedy."""

from __future__ import annotations

from kvplan.plan.errors import KvplanError


class FleetError(KvplanError):
    """The engines of a fleet cannot be read, or a record of one is invalid.

    Connected engines go on. Check that etcd is up and that its URLs and certificates are right.
    """

    code = "R070"
