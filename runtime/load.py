"""Load a plan module from a file, and choose the plan for a pair of sides."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from kvplan.runtime import digest
from kvplan.runtime.errors import DigestError, KvplanError, PlanLoadError
from kvplan.runtime.plan import Plan

_COUNT = itertools.count()


def load(path: str | Path) -> Plan:
    """The `PLAN` of the module at `path`, which is executed: load only files that you trust.

    Raises PlanLoadError where it is not a plan module, PlanFormatError for another format or a wrong digest.
    """
    plan = getattr(_module(Path(path)), "PLAN", None)
    if not isinstance(plan, Plan):
        raise PlanLoadError(f"{path} has no PLAN: give a module that `kvplan compile` wrote")
    digest.check(plan)
    digest.check_functions(plan, Path(path).read_text(encoding="utf-8"))
    return plan


def choose(plans: Iterable[Plan], model: str, prefill: str, decode: str) -> Plan:
    """The plan for a model digest and two side digests. Raises DigestError where there is none."""
    known = list(plans)
    for plan in known:
        if (plan.model_digest, plan.prefill.digest, plan.decode.digest) == (model, prefill, decode):
            return plan
    have = ", ".join(f"{plan.prefill.key} -> {plan.decode.key}" for plan in known) or "none"
    raise DigestError(f"no plan from side {prefill} to side {decode} of model {model}; have {have}: compile this pair")


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"kvplan_plan_{next(_COUNT)}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise PlanLoadError(f"{path} is no Python file: give a module that `kvplan compile` wrote")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except KvplanError:
        raise
    except Exception as error:
        raise PlanLoadError(f"{path} cannot be imported: {type(error).__name__}: {error}") from error
    return module
