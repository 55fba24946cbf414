"""The table of architectures, for people and for `kvplan list --architectures`, from the corpus and its verdicts.

Run as a program it writes layouts/architectures.json, docs/architectures.md and the counts on the front page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.conformance.corpus import Configuration, Release, configurations, lines, releases
from tests.conformance.judge import (
    REFUSED,
    RIGHT,
    UNJUDGED,
    UNJUDGED_WARNED,
    WARNED,
    WRONG,
    WRONG_WARNED,
    Verdict,
)
from tests.conformance.verdicts import read_verdicts, word_of
from tests.paths import DOCS, ROOT

from kvplan.dsl.configs.architectures import TABLE, Architecture, table_text
from kvplan.dsl.files.documents import open_document
from kvplan.dsl.files.variants import variant
from kvplan.dsl.library import Library, load
from kvplan.dsl.text.grouped import grouped
from kvplan.dsl.text.yaml_reader import YamlList, YamlScalar, YamlTable

PAGE, FRONT, DATA = DOCS / "architectures.md", ROOT / "README.md", ROOT / "layouts" / TABLE
BEGIN, END = "<!-- table: architectures -->\n", "<!-- end of table -->"
NO_DUMP_BEGIN = "<!-- table: no dump -->\n"
# Each word of a verdict, and its meaning for users of such a model.
MEANS = {
    RIGHT: "a layout from `kvplan new` is as the engine's own code has the caches, and nothing is in doubt",
    WARNED: "the same, but `kvplan new` names something that it cannot judge, and wants `--accept-doubts`",
    WRONG_WARNED: "the layout differs, and `kvplan new` warns: compare it with your engine (`kvplan from-cache`)",
    WRONG: "the layout differs in some configuration; `kvplan new` prints WRONG and writes it: compare it first",
    REFUSED: "`kvplan new` refuses such configurations, or the engine file refuses what the engine serves",
    UNJUDGED: "`kvplan new` writes a layout without a doubt; the engine's code gave no dump to compare it with",
    UNJUDGED_WARNED: "the same, with a doubt",
}


def rows() -> list[Architecture]:
    """Every architecture of every release, by name."""
    known, library = configurations(), load((), ())
    models = of_models(library)
    found = (row for release in releases() for row in _rows(known, release, models))
    return sorted(found, key=lambda row: (row.name.lower(), row.engine))


def _rows(
    known: Mapping[str, Configuration], release: Release, models: Mapping[str, Sequence[str]]
) -> Iterable[Architecture]:
    verdicts = read_verdicts(release.verdicts_file).values()
    for name, own in grouped((known[verdict.key].architecture, verdict) for verdict in verdicts).items():
        yield row_of(name, str(release).replace("-", " "), own, models.get(name, ()))


def row_of(name: str, engine: str, verdicts: Sequence[Verdict], models: Sequence[str]) -> Architecture:
    word = word_of(verdict.word for verdict in verdicts)
    compared = [verdict for verdict in verdicts if verdict.of]
    right = sum(verdict.equal == verdict.of for verdict in compared)
    kinds = sorted({kind for verdict in verdicts for kind in verdict.kinds})
    keys = sorted({key for verdict in compared if verdict.equal == verdict.of for key in verdict.keys})
    dumps = sum(v.of for v in compared)
    return Architecture(name, engine, word, right, len(compared), dumps, tuple(kinds), tuple(models), tuple(keys))


def of_models(library: Library) -> dict[str, list[str]]:
    """The models that come with kvplan, by the architectures that their files are for."""
    found = (
        (word, model)
        for model, path in library.paths["model"].items()
        for word in _words(variant(open_document(path).root, model))
    )
    return {word: sorted(names) for word, names in grouped(found).items()}


def _words(model: YamlTable) -> list[str]:
    match = model.get("match")
    words = match.get("architectures") if isinstance(match, YamlTable) else None
    items = words.items if isinstance(words, YamlList) else (words,)
    return [str(item) for item in items if isinstance(item, YamlScalar)]


def page(text: str, found: Sequence[Architecture]) -> str:
    """docs/architectures.md with its tables as they are now."""
    text = between(text, BEGIN, table(found))
    return between(text, NO_DUMP_BEGIN, reasons())


def front(text: str, found: Sequence[Architecture]) -> str:
    """The front page with the counts of today."""
    return between(text, BEGIN, counts(found))


def between(text: str, begin: str, fresh: str) -> str:
    before, mark, rest = text.partition(begin)
    assert mark, f"the page lacks {begin}"
    return before + begin + fresh + rest[rest.index(END) :]


def counts(found: Sequence[Architecture]) -> str:
    """A row for each word, with the architectures of each engine, and how much was compared."""
    engines = sorted({row.engine for row in found})
    numbers = Counter((row.engine, row.verdict) for row in found)
    head = [["verdict", *engines, "what it means"], ["---"] * (len(engines) + 2)]
    said = [[word, *(str(numbers[engine, word]) for engine in engines), means] for word, means in MEANS.items()]
    of = f"{sum(row.configurations for row in found):,} configurations"
    return f"{_markdown([*head, *said])}\n{sum(row.dumps for row in found):,} dumps of {of} were compared.\n"


def table(found: Sequence[Architecture]) -> str:
    head = ["architecture", "engine", "verdict", "evidence", "kinds of caches", "layout", "command"]
    body = [
        [
            f"`{row.name}`",
            row.engine,
            row.verdict,
            row.evidence,
            ", ".join(row.kinds),
            ", ".join(f"`{m}`" for m in row.models),
            _command(row),
        ]
        for row in found
    ]
    return _markdown([head, ["---"] * len(head), *body])


def _command(row: Architecture) -> str:
    warned = row.verdict in (WARNED, WRONG_WARNED, UNJUDGED_WARNED)
    return "" if row.verdict == REFUSED else f"`kvplan new config.json{' --accept-doubts' if warned else ''}`"


def reasons() -> str:
    """Why the engine's code gave no dump, architecture by architecture."""
    known = configurations()
    said = []
    for release in releases():
        every = grouped((known[f["key"]].architecture, f) for f in map(json.loads, lines(release.facts_file)))
        none = {name: own for name, own in every.items() if all("none" in f for f in own)}
        said += [[f"`{name}`", str(release), _reason(none[name][0]["none"])] for name in sorted(none, key=str.lower)]
    return _markdown([["architecture", "release", "why"], ["---"] * 3, *said])


def _reason(text: str) -> str:
    """An engine's error in a cell of a table."""
    return re.sub(r"[|<>`\n]", " ", text)[:160].strip()


def _markdown(cells: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in cells)


def main() -> None:
    found = rows()
    DATA.write_text(table_text(found))
    PAGE.write_text(page(PAGE.read_text(), found))
    FRONT.write_text(front(FRONT.read_text(), found))


if __name__ == "__main__":
    main()
