"""Whether a request fits: its plan, both sides' pools, the engine it is asked of; and what it then demands."""

from __future__ import annotations

from kvplan.plan import request as requests
from kvplan.plan.errors import BadRequestError, KvplanError
from kvplan.plan.request import Request
from kvplan.runtime.decode.peer import PrefillEngine
from kvplan.runtime.memory.register import Pool
from kvplan.runtime.transfer import demand as demands
from kvplan.runtime.transfer.demand import Demand


def accept(session: PrefillEngine, pool: Pool, request: Request, fed: bool) -> tuple[Request, Demand]:
    """The request, checked and copied, and what it demands; of one that is fed, as far as decode's tables tell.

    Raises BadRequestError.
    """
    plan = session.plan
    try:
        sizes = session.pools()
        checked = requests.check(plan, request, sizes, pool.blocks, fed=fed)
        return checked, (demands.foreseen if fed else demands.demand)(plan, pool.worker, checked)
    except KvplanError:
        raise
    except Exception as error:
        raise BadRequestError(f"the request cannot be read: {type(error).__name__}: {error}") from error
