"""Pairs of plans that a review compares: identical ones whatever their names, then those of one name, then others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import PurePosixPath

from kvplan.plan.types import Plan


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan as it lies under `path`; `plan` is None where it is of a format that cannot be read."""

    path: str
    text: str
    plan: Plan | None

    @property
    def title(self) -> str:
        """Its name: the path without the suffix."""
        return self.path.removesuffix(".py")


@dataclass(frozen=True, slots=True)
class FilePair:
    """The plans of one pair, before and after; one of them is None where the pair is new or removed."""

    before: PlanFile | None
    after: PlanFile | None

    @property
    def title(self) -> str:
        """What the pair is called, now where it was called otherwise."""
        file = self.after or self.before
        return file.title if file else ""

    @property
    def plans(self) -> tuple[Plan | None, Plan | None]:
        """Both plans, as far as they are there and can be read."""
        return self.before.plan if self.before else None, self.after.plan if self.after else None

    @property
    def full_title(self) -> str:
        """`m/new (was old)`: what the pair is called, and was called. A file that somebody names has no name."""
        former = self.before.title if self.before and self.after and self.after.title else ""
        if former in ("", self.title):
            return self.title
        folder, _, name = former.rpartition("/")
        return f"{self.title} (was {name if folder == self.title.rpartition('/')[0] else former})"


def paired(before: Mapping[str, PlanFile], after: Mapping[str, PlanFile]) -> list[FilePair]:
    """Every plan of both in one pair. A file that somebody names has no path, and is compared with the only other."""
    old, new = dict(before), dict(after)
    if len(old) == len(new) == 1 and "" in (*old, *new):
        return [FilePair(*old.values(), *new.values())]
    found = [*_held(old, new)]
    for key in KEYS:
        found += _matched(old, new, key)
    found += [FilePair(file, None) for file in old.values()] + [FilePair(None, file) for file in new.values()]
    return sorted(found, key=lambda pair: pair.title)


def _held(old: dict[str, PlanFile], new: dict[str, PlanFile]) -> Iterator[FilePair]:
    """Pairs of plans that both have, by digest, which leave `old` and `new`; names mean nothing to engines.

    Files of one plan are paired by equal paths first. What else `old` has of it is still in `new`; what else `new` has
    of it is new.
    """
    here, there = (_by_digest(files) for files in (old, new))
    for digest in [digest for digest in here if digest in there]:
        both = {file.path for file in here[digest]} & {file.path for file in there[digest]}
        olds, news = (
            sorted(some[digest], key=lambda file: (file.path not in both, file.path)) for some in (here, there)
        )
        for before, after in zip_longest(olds, news[: len(olds)], fillvalue=news[-1]):
            old.pop(before.path)
            new.pop(after.path, None)
            yield FilePair(before, after)


def _by_digest(files: Mapping[str, PlanFile]) -> dict[str, list[PlanFile]]:
    found: dict[str, list[PlanFile]] = {}
    for file in files.values():
        if file.plan:
            found.setdefault(file.plan.digest, []).append(file)
    return found


def _matched(
    old: dict[str, PlanFile], new: dict[str, PlanFile], key: Callable[[PlanFile], Hashable | None]
) -> Iterator[FilePair]:
    """Pairs of plans that alone have a key, which leave `old` and `new`."""
    sides = [_alone(files, key) for files in (old, new)]
    for word in [word for word in sides[0] if word in sides[1]]:
        yield FilePair(old.pop(sides[0][word].path), new.pop(sides[1][word].path))


def _alone(files: Mapping[str, PlanFile], key: Callable[[PlanFile], Hashable | None]) -> dict[Hashable, PlanFile]:
    alike: dict[Hashable, list[PlanFile]] = {}
    for file in files.values():
        alike.setdefault(key(file), []).append(file)
    return {word: some[0] for word, some in alike.items() if word is not None and len(some) == 1}


# From the surest to the least sure. Each pairs what all before it have left.
KEYS: Sequence[Callable[[PlanFile], Hashable | None]] = (
    # The path of a pair that a deployment has named.
    lambda file: None if PurePosixPath(file.path).name.startswith("p_") else file.path,
    # What a plan is for, to the letter: such pairs may change their names when others come or go.
    lambda file: (plan := file.plan) and (plan.model, plan.prefill.key, plan.decode.key, plan.options),
    lambda file: file.path,
    # The same engine in front, so that a mesh may change behind it; then the same one behind.
    lambda file: file.plan and (file.plan.model, file.plan.prefill.key),
    lambda file: file.plan and (file.plan.model, file.plan.decode.key),
    lambda file: file.plan and file.plan.model,
)
