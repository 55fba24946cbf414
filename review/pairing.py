"""Pairs of plans that a review compares: identical plans with any names, then plans with equal names, then others."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from pathlib import PurePosixPath

from kvplan.compiler.emit.header import HERE
from kvplan.plan.types import FORMAT, Plan


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A plan in the file `path`; `plan` is None if kvplan cannot read its `format`."""

    path: str
    text: str
    plan: Plan | None
    format: int = FORMAT

    @property
    def title(self) -> str:
        """The name of the plan: its path without the suffix."""
        return self.path.removesuffix(".py")

    @property
    def has_own_layouts(self) -> bool:
        """Whether it is compiled with the user's own layout files, which the command in its header names."""
        return HERE in self.text

    @property
    def short_digest(self) -> str:
        """The first letters of the plan's digest; of its text's, if the plan cannot be read."""
        return (self.plan.digest if self.plan else sha256(self.text.encode()).hexdigest())[:8]


@dataclass(frozen=True, slots=True)
class FilePair:
    """The plans of one pair, before and after; one of them is None if the pair is new or removed."""

    before: PlanFile | None
    after: PlanFile | None

    @property
    def title(self) -> str:
        """The name of the pair: the new one if it changed."""
        file = self.after or self.before
        return file.title if file else ""

    @property
    def plans(self) -> tuple[Plan | None, Plan | None]:
        """Both plans, None for one that does not exist or cannot be read."""
        return self.before.plan if self.before else None, self.after.plan if self.after else None

    @property
    def change(self) -> str:
        """The id of the change, `0a1b2c3d-4e5f6a7b`: the digests before and after, `none` without a plan."""
        return "-".join(file.short_digest if file else "none" for file in (self.before, self.after))

    @property
    def full_title(self) -> str:
        """`m/new (was old)`: the name of the pair with its former name. A file given by its path has no name."""
        former = self.before.title if self.before and self.after and self.after.title else ""
        if former in ("", self.title):
            return self.title
        folder, _, name = former.rpartition("/")
        return f"{self.title} (was {name if folder == self.title.rpartition('/')[0] else former})"


def paired(before: Mapping[str, PlanFile], after: Mapping[str, PlanFile]) -> list[FilePair]:
    """Pairs that hold every plan once. A file given by its path has an empty path here: it is paired with the other."""
    old, new = dict(before), dict(after)
    if len(old) == len(new) == 1 and "" in (*old, *new):
        return [FilePair(*old.values(), *new.values())]
    found = [*_identical_pairs(old, new)]
    for key in KEYS:
        found += _pairs_by_key(old, new, key)
    found += [FilePair(file, None) for file in old.values()] + [FilePair(None, file) for file in new.values()]
    return sorted(found, key=lambda pair: pair.title)


def nearest(file: PlanFile, others: Iterable[PlanFile]) -> PlanFile | None:
    """The plan of the same model among `others` whose options differ least, the first of several; None without one."""
    mine = _purpose(file)
    same = [one for one in others if one.plan and file.plan and one.plan.model == file.plan.model]
    return min(same, key=lambda one: len(mine ^ _purpose(one)), default=None)


def _purpose(file: PlanFile) -> set[tuple[str, str]]:
    """The options of both sides, and those of the pair."""
    plan = file.plan
    if plan is None:
        return set()
    sides = (("prefill", plan.prefill), ("decode", plan.decode))
    return {*plan.options, *((name, option) for name, side in sides for option in side.key.split(","))}


def _identical_pairs(old: dict[str, PlanFile], new: dict[str, PlanFile]) -> Iterator[FilePair]:
    """Pairs of plans with equal digests, removed from `old` and `new`; engines do not look at names.

    Files of one plan are paired by equal paths first. A further file in `old` is paired with a file of the same plan in
    `new`; a further file in `new` counts as new.
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


def _pairs_by_key(
    old: dict[str, PlanFile], new: dict[str, PlanFile], key: Callable[[PlanFile], Hashable | None]
) -> Iterator[FilePair]:
    """Pairs of plans whose key is unique on both sides, removed from `old` and `new`."""
    sides = [_unique_by_key(files, key) for files in (old, new)]
    for word in [word for word in sides[0] if word in sides[1]]:
        yield FilePair(old.pop(sides[0][word].path), new.pop(sides[1][word].path))


def _unique_by_key(
    files: Mapping[str, PlanFile], key: Callable[[PlanFile], Hashable | None]
) -> dict[Hashable, PlanFile]:
    alike: dict[Hashable, list[PlanFile]] = {}
    for file in files.values():
        alike.setdefault(key(file), []).append(file)
    return {word: some[0] for word, some in alike.items() if word is not None and len(some) == 1}


# From the surest key to the least sure. Each pairs the plans that the keys before it left.
KEYS: Sequence[Callable[[PlanFile], Hashable | None]] = (
    # The path of a pair that a deployment has named.
    lambda file: None if PurePosixPath(file.path).name.startswith("p_") else file.path,
    # The exact purpose of a plan. The name of such a pair may change when other pairs are added or removed.
    lambda file: (plan := file.plan) and (plan.model, plan.prefill.key, plan.decode.key, plan.options),
    lambda file: file.path,
    # The same prefill engine: only decode changed. Then the same decode engine.
    lambda file: file.plan and (file.plan.model, file.plan.prefill.key),
    lambda file: file.plan and (file.plan.model, file.plan.decode.key),
    lambda file: file.plan and file.plan.model,
)
