"""A page of documentation as steps that can be run: files to write, changes of them, commands with what they print."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from click.testing import CliRunner

from kvplan.cli.main import main

GAP = "[…]"
FENCE = re.compile(r"^```(yaml|json|diff|console)(?: exit-code=(\d+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FOLDER = "mine"


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page; `start` is where its text begins. `code` is the exit code that its command has."""

    language: str
    code: int
    text: str
    start: int

    @property
    def command(self) -> str:
        return self.text.partition("\n")[0].removeprefix("$ ")

    @property
    def shown(self) -> list[str]:
        """The lines of the command's output that the page shows."""
        return self.text.splitlines()[1:]


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the page with what it really printed, lines, and its exit code."""

    block: Block
    printed: list[str]
    code: int


def blocks(page: str) -> list[Block]:
    """All blocks of a page that mean something: other languages, and none, are prose."""
    return [Block(m[1], int(m[2] or 0), m[3], m.start(3)) for m in FENCE.finditer(page)]


def followed(page: str) -> Iterator[Step]:
    """Follow a page in the current directory; a step for every command."""
    Path(FOLDER).mkdir()
    for block in blocks(page):
        if block.language == "yaml":
            path_of(block.text).write_text(block.text)
        elif block.language == "json":
            Path(f"{json.loads(block.text)['model_type']}.json").write_text(block.text)
        elif block.language == "diff":
            change(block.text)
        else:
            yield run(block)


def path_of(text: str) -> Path:
    """The path of a layout file, after the name in its second line."""
    found = re.match(r"kvplan: 1\n\w+: (\S+)\n", text)
    assert found, f"no layout file: {text}"
    return Path(FOLDER, f"{found[1]}.yaml")


def change(text: str) -> None:
    """Apply a change of one place in one of the files. The lines that go stand in exactly one of them, once."""
    old, new = ("".join(f"{line[1:]}\n" for line in text.splitlines() if line[0] in keep) for keep in (" -", " +"))
    found = [path for path in sorted(Path(FOLDER).glob("*.yaml")) if old in path.read_text()]
    assert len(found) == 1, f"{len(found)} files have: {old}"
    (path,) = found
    assert path.read_text().count(old) == 1
    path.write_text(path.read_text().replace(old, new))


def run(block: Block) -> Step:
    program, *words = shlex.split(block.command)
    assert (program, block.text[:2]) == ("kvplan", "$ "), f"no command: {block.command}"
    done = CliRunner().invoke(main, words)
    return Step(block, done.output.splitlines(), done.exit_code)


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Whether a block shows what was printed; a line `[…]` stands for one line or more."""
    lines = (r"(?:.*\n)+?" if line.strip() == GAP else re.escape(line) + r"\n" for line in shown)
    return bool(re.fullmatch("".join(lines), "".join(f"{line}\n" for line in printed)))


def renewed(shown: list[str], printed: list[str]) -> list[str]:
    """The printed lines to show: as many as before around every gap."""
    if not shown:
        return printed
    found: list[str] = []
    for tag, i, j, k, m in SequenceMatcher(None, shown, printed, autojunk=False).get_opcodes():
        found += printed[k:m] if tag == "equal" else _between(shown[i:j], printed[k:m])
    return found


def _between(shown: list[str], printed: list[str]) -> list[str]:
    """The same between two lines that did not change: cut where it was cut."""
    gaps = [at for at, line in enumerate(shown) if line.strip() == GAP]
    if not gaps or len(printed) <= len(shown) - len(gaps):
        return printed
    tail = len(shown) - 1 - gaps[-1]
    return [*printed[: gaps[0]], shown[gaps[0]], *printed[len(printed) - tail :]]
