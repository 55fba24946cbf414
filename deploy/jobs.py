"""Pairs to compile: those of a deployment file, or models × prefill sides × decode sides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from kvplan.compiler.api import DOUBT, Compiled, compile_pair, identifier, settled
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.errors import BadInput, CompileError, ProofFailed, Refused
from kvplan.compiler.side.keys import check_pool
from kvplan.compiler.side.text import sides
from kvplan.deploy import pair_names, plan_index
from kvplan.dsl.library import Library
from kvplan.dsl.named import is_path, libraries, names_of
from kvplan.dsl.schema.deployment import Deployment
from kvplan.dsl.text.diagnostics import Diagnostic, DslError
from kvplan.dsl.text.source import SourceSpan
from kvplan.plan.types import Plan

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PairJob:
    """One pair of one model. `name` is its name in a deployment, empty without one."""

    model: str
    prefill: str
    decode: str
    options: Mapping[str, str]
    name: str = ""
    # The places of its prefill and decode sides in a deployment; after a refusal, only the side at fault.
    places: tuple[SourceSpan, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.model}: {self.prefill} -> {self.decode}"

    @property
    def path(self) -> str:
        """The path of its plan; empty without a name, because it then depends on what else compiles."""
        return pair_names.path_of(self.model, identifier(self.name)) if self.name else ""


@dataclass(frozen=True, slots=True)
class CompileOutcome:
    """Plans by path, and the pairs without one, with the reason: Refused or ProofFailed."""

    plans: Mapping[str, Compiled]
    refused: Sequence[tuple[PairJob, CompileError]]

    @property
    def doubts(self) -> tuple[str, ...]:
        """The doubts about the models, each once."""
        every = ((plan.plan.model, note) for plan in self.plans.values() for note in plan.facts.notes)
        return tuple(dict.fromkeys(f"{model}: {note}" for model, note in every if note.startswith(DOUBT)))


# Yields each job as it begins, and may show it.
Watch = Callable[[Sequence[PairJob]], Iterable[PairJob]]


def product(models: Iterable[str], prefill: str, decode: str, options: Mapping[str, str]) -> list[PairJob]:
    """Return models × prefill sides × decode sides. Raises BadInput."""
    readers = sides(decode)
    return [PairJob(model, p, d, options) for model in models for p in sides(prefill) for d in readers]


def of_plan(plan: Plan) -> PairJob:
    """Return the pair that a plan is for."""
    return PairJob(plan.model, plan.prefill.key, plan.decode.key, dict(plan.options))


def deployed(library: Library, deployment: Deployment, options: Mapping[str, str]) -> list[PairJob]:
    """Return every job of a deployment file; options of the command line win over the file's."""
    for text in (text for spec in deployment.plans for text in (*spec.prefill, *spec.decode)):
        check_pool(text)
    return [
        replace(job, name=spec.name, places=(prefill.span, decode.span))
        for spec in deployment.plans
        for prefill in spec.prefill
        for decode in spec.decode
        for job in product(_named(library, spec.models), prefill, decode, {**spec.options, **options})
    ]


def of_models(
    models: Sequence[str], prefill: str, decode: str, options: Mapping[str, str], layouts: Sequence[Path]
) -> tuple[Library, list[PairJob]]:
    """Return the layout files, and every job of models named by name or path.

    Raises DslError; BadInput (S025) if a deployment is among them, or no model at all.
    """
    library, names = libraries(models, layouts)
    deployments = {path.resolve() for path in library.paths["deployment"].values()}
    for word in models:
        if is_path(word) and Path(word).resolve() in deployments:
            message = f"{word} is a deployment, which has its own sides"
            raise BadInput("S025", message, "`kvplan compile` takes it, without --prefill and --decode")
    if not names:
        help = "name a model, too: a file of a kind or an engine is loaded beside it"
        raise BadInput("S025", f"there is nothing to do: no model in {', '.join(models)}", help)
    return library, product(names, prefill, decode, options)


def _named(library: Library, models: Sequence[str]) -> list[str]:
    return [name for model in models for name in names_of(library, model)]


def opened(
    paths: Sequence[Path], options: Mapping[str, str], layouts: Sequence[Path] = ()
) -> tuple[Library, list[PairJob]]:
    """Open deployment files: return layout files, with those named by path, and jobs. Raises DslError, BadInput."""
    plain, _ = libraries([], layouts)
    found = [plain.deployment(path) for path in paths]
    named = dict.fromkeys(model for one in found for spec in one.plans for model in spec.models)
    library, _ = libraries(list(named), layouts)
    if errors := name_errors(library, found):
        raise DslError(*errors)
    every = [job for one in found for job in deployed(library, one, options)]
    if not every:
        message = f"there is nothing to do: no plans in {', '.join(map(str, paths))}"
        raise BadInput("S025", message, "list models and pairs of sides under 'plans'")
    return library, every


def name_errors(library: Library, deployments: Iterable[Deployment]) -> list[Diagnostic]:
    """Return errors for names that belong to more than one pair (S029)."""
    errors: list[Diagnostic] = []
    places: dict[tuple[str, str], SourceSpan] = {}
    for spec in (spec for deployment in deployments for spec in deployment.plans if spec.name):
        place = spec.name.span
        if (count := _count(spec.prefill) * _count(spec.decode)) > 1:
            message = f"'{spec.name}' is the name of one pair, and this entry makes {count} of a model"
            errors.append(Diagnostic("S029", message, place, (), "give each pair an entry of its own, or no name"))
        for model in _named(library, spec.models):
            first = places.setdefault((model, identifier(spec.name)), place)
            if first != place:
                message = f"'{spec.name}' is the name of another pair of {model}"
                note = f"the other one is at {first.path}:{first.line}"
                errors.append(Diagnostic("S029", message, place, (note,), "choose another name"))
    return errors


def _count(texts: Iterable[str]) -> int:
    """Count the sides that texts with products stand for; an unreadable one counts as one."""
    return sum(len(text) for text in map(sides_of, texts))


def sides_of(text: str) -> list[str]:
    """Return the sides of a product; the text itself if it is unreadable, which binding will report."""
    try:
        return sides(text)
    except BadInput:
        return [text]


def run(library: Library, jobs: Sequence[PairJob], watch: Watch = iter) -> CompileOutcome:
    """Compile all jobs of deployments; a pair that is refused, or whose proof fails, does not stop the others.

    `watch` yields each job as it begins, for a progress bar. Raises BadInput, DslError; for an unknown option
    before any pair is compiled.
    """
    for job in jobs:
        settled(job.options)
    done, refused = each(
        watch(jobs), lambda job: compile_pair(library, job.model, job.prefill, job.decode, job.options)
    )
    placed = [(replace(job, places=_refused_at(library, job)), error) for job, error in refused]
    return CompileOutcome(pair_names.in_deployment((job.name, pair) for job, pair in done), placed)


def compiled(deployment: Path, watch: Watch = iter) -> Mapping[str, Compiled]:
    """Compile a whole deployment; return plans by path. Raises DslError, BadInput, Refused, ProofFailed."""
    outcome = run(*opened([deployment], {}), watch)
    for _, error in outcome.refused:
        raise error
    return outcome.plans


def _refused_at(library: Library, job: PairJob) -> tuple[SourceSpan, ...]:
    """Return the place of the side that is refused by itself, else of the decode side; none if there are no places."""
    for text, place in zip((job.prefill, job.decode), job.places, strict=False):
        try:
            bind(library, library.model(job.model), text)
        except Refused:
            return (place,)
    return job.places[-1:]


def run_beside(out: Path, library: Library, jobs: Sequence[PairJob], watch: Watch = iter) -> CompileOutcome:
    """Compile like `run`, for pairs outside a deployment, into a folder that may have others. Raises PlanIndexError."""
    outcome = run(library, jobs, watch)
    return replace(outcome, plans=pair_names.beside(plan_index.entries(out), outcome.plans.values()))


def each(
    jobs: Iterable[PairJob], result: Callable[[PairJob], T]
) -> tuple[list[tuple[PairJob, T]], list[tuple[PairJob, CompileError]]]:
    """Return the jobs with their `result`, and jobs without a plan: refused, or with a failed proof. The latter do not
    stop the others.
    """
    done: list[tuple[PairJob, T]] = []
    refused: list[tuple[PairJob, CompileError]] = []
    for job in jobs:
        try:
            done.append((job, result(job)))
        except (Refused, ProofFailed) as error:
            refused.append((job, error))
    return done, refused
