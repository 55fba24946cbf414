"""What may be wrong with a fleet: a permanent code, and what to do."""

from __future__ import annotations

from kvplan.plan.errors import KvplanError


class FleetError(KvplanError):
    """Engines of a fleet cannot be asked for, or what is kept of one is no record.

    Engines that have met go on. Is etcd up, and do its URLs and certificates fit?
    """

    code = "R070"
