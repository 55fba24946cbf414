"""Find the engine file for a running engine by Python package, release and platform, which the files name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from kvplan.compiler.errors import BadInput
from kvplan.dsl.schema.engine import Engine
from kvplan.dsl.text.diagnostics import listed

if TYPE_CHECKING:
    from kvplan.dsl.library import Library


def engine_for(library: Library, package: str, release: str, platform: str) -> Engine:
    """Return the engine whose file matches all three. Raises BadInput (I003) unless exactly one does.

    Without a release it is the default engine, if its file is for the platform.
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
    """Whether a release is among `versions`, written as in an engine's file: `>=0.29`."""
    try:
        return SpecifierSet(versions).contains(release, prereleases=True)
    except InvalidSpecifier:
        return False
