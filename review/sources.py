"""The plans that OLD and NEW of a review name: in files, at a git revision, or of a deployment, compiled now."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from importlib.resources import as_file, files
from pathlib import Path
from subprocess import CalledProcessError

from kvplan.compiler.errors import BadInput, CompileError
from kvplan.deploy import jobs, plans
from kvplan.deploy.first import is_first
from kvplan.deploy.plan_index import entry_of
from kvplan.deploy.revisions import listed, same_repository
from kvplan.dsl.files.folders import SUFFIXES, folder_files, is_hidden, is_layout_text
from kvplan.dsl.library import load
from kvplan.dsl.named import is_layout_file, model_files
from kvplan.dsl.text.source import shown
from kvplan.plan.errors import PlanFormatError
from kvplan.plan.files.index import IndexEntry
from kvplan.review.defaults import with_defaults
from kvplan.review.layouts import LayoutChange, layout_changes
from kvplan.review.pairing import PlanFile, paired
from kvplan.review.review import NEW, OLD, RefusedPair, Review, review, with_costs, with_shared

RefusedJob = tuple[jobs.PairJob, CompileError]


@dataclass(frozen=True, slots=True)
class Compared:
    """A review, with the errors of the pairs of its deployments that could not be compiled."""

    review: Review
    refused: Sequence[RefusedJob] = ()
    # The entries of an index of OLD, and of one of NEW; empty unless `compared` was called with `indexed`.
    before: tuple[IndexEntry, ...] = ()
    after: tuple[IndexEntry, ...] = ()


def compared(old: str, new: str, layouts: Sequence[Path], indexed: bool = False, watch: jobs.Watch = iter) -> Compared:
    """The review of the plans that OLD and NEW name; if `indexed`, with the index entries of all plans.

    All plans are new if the revision of OLD has none. `watch` yields each pair of a deployment when its compilation
    begins.

    Raises BadInput, DslError, PlanFormatError.
    """
    texts: list[Mapping[str, str]] = []
    refused: list[tuple[str, RefusedJob]] = []
    damaged: list[str] = []
    for of, name, other in ((OLD, old, new), (NEW, new, old)):
        first = of == OLD and is_first(name, other, compiled=is_layout_file(other))
        found, problems = (
            ({}, ()) if first else _texts(name, other, layouts, watch, damaged.append if of == OLD else None)
        )
        texts.append(found)
        refused += [(of, one) for one in problems]
    _check_counts(old, new, texts)
    same, before, after = _files(texts, (old, new))
    models = _own_models((old, new), layouts)
    pairs = [_refused(of, *one) for of, one in refused]
    answer = review(before, after, _layouts(old, new, models, layouts), len(same), pairs)
    answer = replace(answer, damaged=tuple(damaged))
    if answer.new:
        answer = with_costs(answer, {**before, **_of_models(answer, texts[0], same, old)}.values())
    answer = with_shared(answer, {**after, **_of_old_sides(answer, texts[1], same, new)}.values())
    answer, errors = _completed(answer, (old, new), models, layouts), [one for _, one in refused]
    if not indexed:
        return Compared(answer, errors)
    alike = {path: _file(path, texts[0][path], old) for path in same}
    return Compared(answer, errors, *(_entries({**files, **alike}) for files in (before, after)))


def _of_models(answer: Review, texts: Mapping[str, str], same: Set[str], name: str) -> dict[str, PlanFile]:
    """The unchanged plans that may be of a model of a new pair."""
    models = {plan.model for one in answer.new for plan in one.pair.plans if plan}
    return _read_files(texts, {path for path in same if any(model in texts[path] for model in models)}, name)


def _of_old_sides(answer: Review, texts: Mapping[str, str], same: Set[str], name: str) -> dict[str, PlanFile]:
    """The unchanged plans that may have a side which a changed pair leaves."""
    left = {getattr(old, side).digest for one in answer.changed if (old := one.pair.plans[0]) for side in one.rolls}
    return _read_files(texts, {path for path in same if any(digest in texts[path] for digest in left)}, name)


def annotated(old: str, new: str) -> str:
    """The path whose files annotations name: the directory of plans that OLD names if NEW is a deployment."""
    compiled = is_layout_file(new) and not is_layout_file(old)
    return plans.place(*((old, new) if compiled else (new, old)))[1]


def _refused(of: str, job: jobs.PairJob, error: CompileError) -> RefusedPair:
    place, title = next(iter(job.places), None), job.path.removesuffix(plans.SUFFIX)
    return RefusedPair(of, job.model, str(job), error.code, error.message, error.help, place, title)


def _check_counts(old: str, new: str, texts: Sequence[Mapping[str, str]]) -> None:
    """Raise BadInput (S021) if one plan would be compared with several: all others would count as new or removed."""
    for name, one, other, several in ((old, texts[0], new, texts[1]), (new, texts[1], old, texts[0])):
        if [*one] != [""] or len(several) < 2:
            continue
        if is_layout_file(other):
            message = f"{other} has {len(several)} plans, and {name} is one plan"
            raise BadInput("S021", message, "compile it, and name one of its plans")
        raise plans.several(other, [*several], f"{name} is one plan")


def change_of(old: tuple[str, str], new: tuple[str, str], layouts: Sequence[Path]) -> Review:
    """The review of one plan; `old` and `new` are its name, as `kvplan diff` takes it, and its text.

    The name is empty if the plan was compiled just now. Raises BadInput, DslError, PlanFormatError.
    """
    before, after = ({"": _file("", text, name or "the plan")} for name, text in (old, new))
    names = old[0], new[0] or os.curdir
    return _completed(review(before, after, _layouts(*names, (), layouts)), names, (), layouts)


def _completed(answer: Review, names: tuple[str, str], models: Sequence[Path], layouts: Sequence[Path]) -> Review:
    """The review with defaults, and with the folders in which commands find its layout files."""
    folders = dict.fromkeys([*layouts, *(model.parent for model in models)])
    uncompared = not folders and len({*map(plans.revision, names)}) > 1
    found = with_defaults(answer, models, layouts)
    return replace(found, folders=tuple(folders), uncompared=uncompared, one_index=plans.in_one_index(*names))


def former(revision: str, path: str) -> tuple[str, str] | None:
    """The plan at a revision to compare with the plan at `path`: its name, as `kvplan diff` takes it, and its text.

    None if there is none. It may have had another path: a plan that the deployment does not name is called after its
    sides. Raises BadInput, PlanFormatError, PlanIndexError.
    """
    folder = plans.folder_of(Path(path))
    here = Path(path).relative_to(folder).as_posix()
    names = revision, str(folder)
    _, before, after = _files([plans.read(name, str(folder)) for name in names], names)
    found = [pair.before for pair in paired(before, after) if pair.after and pair.after.path == here and pair.before]
    return (f"{plans.GIT}{plans.revision(revision)}:{folder}/{found[0].path}", found[0].text) if found else None


def _files(
    texts: Sequence[Mapping[str, str]], names: tuple[str, str]
) -> tuple[set[str], dict[str, PlanFile], dict[str, PlanFile]]:
    """The paths of unchanged plans, and the other plans before and after, with unchanged ones of the same digest."""
    old, new = texts
    same = {path for path, text in old.items() if new.get(path) == text}
    other = [_read_files(found, {*found} - same, name) for found, name in zip(texts, names, strict=True)]
    digests = {file.plan.digest for files in other for file in files.values() if file.plan}
    copies = {path for path in same if any(digest in old[path] for digest in digests)}
    before, after = (
        {**files, **_read_files(found, copies, name)} for files, found, name in zip(other, texts, names, strict=True)
    )
    return same - copies, before, after


def _read_files(texts: Mapping[str, str], paths: Set[str], name: str) -> dict[str, PlanFile]:
    return {path: _file(path, text, name) for path, text in texts.items() if path in paths}


def _texts(
    name: str, other: str, layouts: Sequence[Path], watch: jobs.Watch, warn: plans.Warn | None
) -> tuple[Mapping[str, str], Sequence[RefusedJob]]:
    """The texts of plans by path, and the refused pairs of a deployment."""
    if not is_layout_file(name):
        return plans.read(name, other, warn), ()
    outcome = jobs.run(*jobs.opened([Path(name)], {}, layouts), watch)
    return {path: pair.text for path, pair in outcome.plans.items()}, outcome.refused


def _file(path: str, text: str, name: str) -> PlanFile:
    """A plan with its text; the plan is None if it has another format. Raises PlanFormatError for any other text."""
    full = f"{name}/{path}" if path else name
    try:
        return PlanFile(path, text, plans.parsed(text, full))
    except PlanFormatError as error:
        if error.format is None:
            raise
        return PlanFile(path, text, None, error.format)


def _entries(files: Mapping[str, PlanFile]) -> tuple[IndexEntry, ...]:
    """The index entries of plans, without those of other formats."""
    return tuple(entry_of(path, file.text, file.plan) for path, file in files.items() if file.plan is not None)


def _layouts(old: str, new: str, models: Sequence[Path], folders: Sequence[Path]) -> list[LayoutChange]:
    """The changed keys of layout files between two revisions, or a revision and the working tree.

    A path is left out if only one of them has files there: git does not track an installed kvplan, for example. The
    shipped files count only in the repository of the plans: the revision is another one in a clone of kvplan.
    """
    revisions = [plans.revision(name) for name in (old, new)]
    place = Path(plans.place(old, new)[1])
    if revisions[0] == revisions[1]:
        return []
    with as_file(files("kvplan.layouts")) as shipped:
        ours = [shipped.resolve()] if same_repository(shipped, place) else []
        every = [*folders, *ours, *models]
        read = [[dict(_read(path, revision)) for revision in revisions] for path in every]
    both = [texts for texts in read if all(texts)]
    return layout_changes(*(dict(ChainMap(*texts)) for texts in zip(*both, strict=True))) if both else []


def _own_models(names: Sequence[str], folders: Sequence[Path]) -> list[Path]:
    """The layout files that deployments among `names` name by path."""
    if not any(map(is_layout_file, names)):
        return []
    library = load([], folders)
    found = [library.deployment(Path(name)) for name in names if is_layout_file(name)]
    return [path for one in found for path in model_files(one)]


def _read(path: Path, revision: str) -> Iterable[tuple[str, str]]:
    """Layout files at or under a path: the path as it is shown, and the text; none if the revision lacks the path."""
    if not revision:
        every = folder_files(path).layouts if path.is_dir() else (path,)
        return [(shown(file), file.read_text(errors="replace")) for file in every if file.is_file()]
    try:
        found = listed(revision, str(path), SUFFIXES)
    except (CalledProcessError, OSError):
        return []
    seen = {name: text for name, text in found.items() if not any(map(is_hidden, Path(name).parts))}
    return [(shown(path / name), text) for name, text in seen.items() if is_layout_text(text)]
