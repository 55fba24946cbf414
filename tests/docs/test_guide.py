"""docs/runtime.md, followed literally: its commands and its Python, with what they print."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.paths import ROOT
from tests.runtime.helpers.agents import has_nixl

from kvplan import runtime
from kvplan.cli.main import main
from kvplan.runtime import errors, inspection
from kvplan.runtime.control import messages

DOCS = ROOT / "docs"
TEXT = (DOCS / "runtime.md").read_text()
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Step:
    """Something to run, what the page shows of its output, and the number of its block."""

    number: int
    language: str
    source: str
    shown: str


def steps(page: str) -> list[Step]:
    """Python blocks, each with the block `text` behind it, and the commands of console blocks."""
    found: list[Step] = []
    for number, (language, text) in enumerate(FENCE.findall(page)):
        if language == "text":
            found[-1] = Step(found[-1].number, "python", found[-1].source, text)
        elif language == "python":
            found.append(Step(number, language, text, ""))
        elif language == "console":
            found += [Step(number, language, *said.split("\n", 1)) for said in text.split("$ ")[1:]]
    return found


def follow(step: Step, names: dict[str, Any]) -> str:
    """Run a step in the current directory; what it printed."""
    if step.language == "console":
        return CliRunner().invoke(main, shlex.split(step.source)[1:], catch_exceptions=False).stdout
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(step.source, f"runtime.md, block {step.number}", "exec"), names)
    return said.getvalue()


def nixl(step: Step) -> Step:
    """A step with other transports."""
    return replace(step, source=step.source.replace("InMemory(hub)", 'Nixl("worker")'))


STEPS = steps(TEXT)


@pytest.fixture(
    scope="module",
    params=["memory", pytest.param("nixl", marks=pytest.mark.skipif(not has_nixl(), reason="NIXL is not installed"))],
)
def printed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """All of the page over memory, and with the one change that it asks for over NIXL."""
    names: dict[str, Any] = {"__name__": "guide"}
    if request.param == "nixl":
        names["Nixl"] = runtime.Nixl
    page = [nixl(step) if request.param == "nixl" else step for step in STEPS]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("guide"))
        try:
            yield [follow(step, names) for step in page]
        finally:
            for worker in (names.get("decode"), *names.get("prefill", ())):
                if worker is not None:
                    worker.close()


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_a_step_prints_what_the_page_shows(number: int, printed: list[str]) -> None:
    assert printed[number] == STEPS[number].shown


def test_the_page_shows_every_end_of_the_way() -> None:
    shown = "".join(step.shown for step in STEPS)
    for word in ("'finished'", "done 4587520", "timed_out R043", "running 80%", "wrote plans/"):
        assert word in shown
    source = "".join(step.source for step in STEPS)
    for call in (".hold(", ".offer(", ".submit(", ".open(", ".released(", "Keys.load(", 'mode="push"', "await fed"):
        assert call in source


def test_the_page_has_one_word_to_change() -> None:
    assert sum(step.source.count("InMemory(hub)") for step in STEPS) == 2
    assert "`InMemory(hub)` is `Nixl(name)`" in TEXT


def test_a_page_that_shows_something_else_is_found(tmp_path: Path) -> None:
    (step,) = steps("```python\nprint(1 + 1)\n```\n\nwhich is\n\n```text\n3\n```\n")
    assert (follow(step, {}), step.shown) == ("2\n", "3\n")


@pytest.mark.parametrize("page", ["runtime.md", "security.md"])
def test_codes_are_those_of_their_errors(page: str) -> None:
    text = (DOCS / page).read_text()
    named = re.findall(r"`(\w+Error)`[ ,|(]+(R\d{3})", text)
    assert named
    assert [(name, getattr(errors, name).code) for name, _ in named] == named


def test_every_end_of_a_request_is_in_the_table_of_failures() -> None:
    table = TEXT[TEXT.index("| error | code |") :]
    ends = {e.__name__ for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.RequestError)}
    assert {name for name in ends - {"RequestError"} if f"`{name}`" not in table} == set()


def test_what_the_page_names_is_there() -> None:
    workers = runtime.PrefillWorker, runtime.DecodeWorker
    for section, worker in zip(("Prefill", "Decode"), workers, strict=True):
        text = TEXT[TEXT.index(f"\n## {section}\n") :].partition("\n## ")[2].partition("\n## ")[0]
        calls = {name for line in text.splitlines() if line.startswith("* `") for name in re.findall(r"`(\w+)\(", line)}
        assert calls
        assert {name for name in calls if not hasattr(worker, name)} == set()


@pytest.mark.parametrize("section", ["When a hold ends", "Inspection"])
def test_names_in_tables_are_those_of_the_code(section: str) -> None:
    text = TEXT[TEXT.index(f"\n## {section}\n") :].partition("\n## ")[2].partition("\n## ")[0]
    named = {
        name
        for line in text.splitlines()
        if line.startswith("|")
        for name in re.findall(r"`([a-zA-Z_]+)(?:\(\))?`", line)
    }
    states = [one for one in vars(inspection).values() if isinstance(one, type) and is_dataclass(one)]
    known = {field.name for one in (*states, runtime.Released) for field in fields(one)}
    known |= {
        *map(str, messages.LossReason),
        *dir(runtime.PrefillWorker),
        *dir(messages),
        *runtime.__all__,
        *dir(errors),
    }
    assert named - known == set()
    assert len(named) > 10


@pytest.mark.parametrize("page", ["runtime.md", "security.md", "hazards.md"])
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (DOCS / page).read_text()):
        assert link.startswith("https://") or (DOCS / link).is_file(), link
