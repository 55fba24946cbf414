"""Load a plan module from a file, and choose the plan for a pair of sides."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kvplan.plan import digest
from kvplan.plan.errors import PlanLoadError, PlanMissingError
from kvplan.plan.files import module
from kvplan.plan.files.numbers import check_numbers
from kvplan.plan.types import Plan


def load_plan(path: str | Path) -> Plan:
    """Load the `PLAN` of the module at `path`, which is parsed and not executed.

    Raises PlanLoadError if it cannot be read, PlanFormatError if it is no plan of this version or was changed.
    """
    path = Path(path)
    if path.suffix != ".py" or not path.is_file():
        raise PlanLoadError(f"{path} is no Python file: give a module that `kvplan compile` wrote")
    try:
        return loaded(path.read_bytes(), str(path))
    except OSError as error:
        raise PlanLoadError(f"{path} cannot be read: {error.strerror}") from error


def loaded(data: bytes, name: str) -> Plan:
    """Load the plan of a module's bytes; errors call it `name`. Raises as `load_plan` does."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PlanLoadError(f"{name} cannot be read: it is not UTF-8: {error}") from error
    return parse(text, name)


def parse(text: str, name: str) -> Plan:
    """Parse the plan of a module's text. Raises PlanFormatError."""
    plan = module.read(text, name)
    digest.check(plan)
    check_numbers(plan)
    return plan


def choose(plans: Iterable[Plan], model: str, prefill: str, decode: str) -> Plan:
    """Return the plan for a model digest and two side digests. Raises PlanMissingError if there is none."""
    known = list(plans)
    for plan in known:
        if (plan.model_digest, plan.prefill.digest, plan.decode.digest) == (model, prefill, decode):
            return plan
    have = ", ".join(f"{plan.prefill.key} -> {plan.decode.key}" for plan in known) or "none"
    wanted = f"from side {prefill!a:.80} to side {decode!a:.80} of model {model!a:.80}"
    raise PlanMissingError(f"no plan {wanted}; have {have}: compile this pair")
