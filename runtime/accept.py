"""Whether a request fits: its plan, both sides' pools, the engine it is asked of; and what it then demands."""

from __future__ import annotations

from dataclasses import replace

from kvplan.runtime import demand as demands
from kvplan.runtime import request as requests
from kvplan.runtime.catalog import Plans, Role
from kvplan.runtime.demand import Demand
from kvplan.runtime.errors import BadRequestError, DigestError, HandshakeError, KvplanError
from kvplan.runtime.identity import Identity
from kvplan.runtime.register import Pool
from kvplan.runtime.request import Request
from kvplan.runtime.session import Session


def accept(session: Session, pool: Pool, request: Request, fed: bool) -> tuple[Request, Demand]:
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


def identified(identity: Identity, plans: Plans, role: Role, side: str) -> Identity:
    """`identity` with its model, which is that of the plans with this side where it does not say.

    Raises DigestError where the plans do not tell either, HandshakeError where it is no identity.
    """
    if not isinstance(identity, Identity):
        raise HandshakeError(f"an identity is an Identity(name, run, …), not {type(identity).__name__}")
    if identity.model_digest:
        return identity
    known = {name: digest for name, digest in plans.models(role, side) if identity.model in ("", name)}
    if len(known) != 1:
        have = ", ".join(sorted(known)) or "none"
        text = f"plans with {role} side {side} are of the models: {have}"
        raise DigestError(f"{text}: name one (Identity(model=…)), or compile a plan with this side")
    name, digest = known.popitem()
    return replace(identity, model=name, model_digest=digest)
