"""Which engine's file is for a running engine: by its Python package, release and platform, which files name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from kvplan.compiler.errors import BadInput
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.text.diagnostics import listed

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


def engine_for(library: Library, package: str, release: str, platform: str) -> Engine:
    """The engine whose file says that it is for all three. Raises BadInput (I003) unless there is exactly one.

    Without a release the default engine's file is used, if it is for the platform.
    """
    every = [library.engine(known) for known in library.engines]
    packaged = [each for each in every if each.package == package]
    here = [each for each in packaged if platform in each.platforms]
    if packaged and not here:
        platforms = sorted({name for each in packaged for name in each.platforms})
        raise BadInput("I003", f"no engine's file is for {package} on {platform!r}", f"expected {listed(platforms)}")
    fitting = [each for each in here if not release or describes(each.versions, release)]
    if not release and len(fitting) > 1:
        fitting = [each for each in fitting if each.name == library.default_engine] or fitting
    if len(fitting) == 1:
        return fitting[0]
    what = f"{package} {release or 'of any release'} on {platform}"
    named = ((each.name, each.versions) for each in fitting or here or every)
    known = ", ".join(f"{name} ({versions})" if versions else name for name, versions in named)
    count = "several engines' files are" if fitting else "no engine's file is"
    raise BadInput("I003", f"{count} for {what}", f"name the engine, one of {known}")


def describes(versions: str, release: str) -> bool:
    """Whether releases as a file writes them, `>=0.29`, have this one."""
    try:
        return SpecifierSet(versions).contains(release, prereleases=True)
    except InvalidSpecifier:
        return False
