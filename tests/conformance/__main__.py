"""Judge every configuration against engines' own code: `python -m tests.conformance [WORD…]`, keys with a word only.

Prints what changed since verdicts were accepted, and counts. Ends with 1 where something changed; --accept keeps it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from tests.conformance.corpus import Configuration, Release, configurations, releases
from tests.conformance.judge import Verdict, judged_release
from tests.conformance.verdicts import changes, counted, of_architectures, read_verdicts, written


def main(arguments: Sequence[str]) -> int:
    options = read(arguments)
    known, changed = configurations(), False
    for release in releases():
        begun = time.monotonic()
        found = judged_release(known, release, options.words, keys=options.accept)
        took = time.monotonic() - begun
        accepted = read_verdicts(release.verdicts_file)
        told = changes(accepted, found)
        for verdict in found if options.all or options.words else ():
            print(f"{verdict.key}: {verdict.word}, {verdict.equal}/{verdict.of} {verdict.why}")
        for change in told:
            print(change)
        print(f"{summary(known, release, found)}, in {took:.0f} s")
        if options.accept:
            accept(release, accepted, found, whole=not options.words)
        changed |= bool(told)
    return int(changed and not options.accept)


def read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.conformance", description=__doc__)
    parser.add_argument("words", nargs="*", help="judge the configurations whose keys have one of them")
    parser.add_argument("--accept", action="store_true", help="keep the verdicts of today as the expected ones")
    parser.add_argument("--all", action="store_true", help="print every verdict, not the changed ones only")
    return parser.parse_args(arguments)


def summary(known: dict[str, Configuration], release: Release, found: Sequence[Verdict]) -> str:
    architectures = of_architectures((known[verdict.key].architecture, verdict.word) for verdict in found)
    dumps = sum(verdict.of for verdict in found)
    return "\n".join(
        (
            f"{release}: {len(found)} configurations: {counted(verdict.word for verdict in found)}",
            f"{release}: {len(architectures)} architectures: {counted(architectures.values())}",
            f"{release}: {dumps} dumps compared",
        )
    )


def accept(release: Release, before: dict[str, Verdict], found: Sequence[Verdict], whole: bool) -> None:
    """Write verdicts; of a part of the corpus, beside the others."""
    kept = {} if whole else before
    release.verdicts_file.write_text(written({**kept, **{verdict.key: verdict for verdict in found}}.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
