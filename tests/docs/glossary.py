"""The index of classes in docs/glossary.md, as the code has them now. Run as a program it writes it into the page."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from tests.paths import CODE, ROOT

from kvplan.dsl.schema.shapes import Form, FormKeys

PAGE = ROOT / "docs" / "glossary.md"
# An engine alone can import these, or a machine with a GPU.
FOREIGN = re.compile(r"^(?:from|import) (?:sglang|triton|vllm)\b", re.MULTILINE)
INDEX = re.compile(r"(<!-- classes -->\n).*?(<!-- end of classes -->)", re.DOTALL)


def fresh(page: str) -> str:
    """`page` with its index of classes written again."""
    lines = "".join(room(folder) for folder in folders())
    return INDEX.sub(lambda hit: f"{hit[1]}\n{lines}{hit[2]}", page)


def folders() -> list[Path]:
    return sorted({path.parent for name in CODE for path in (ROOT / name).rglob("__init__.py")})


def room(folder: Path) -> str:
    """A heading and a line for each public class of a folder, nothing where it has none."""
    name = folder.relative_to(ROOT)
    lines = sorted(line(*found) for path in folder.glob("*.py") for found in classes(path))
    return "\n".join([f"### {name}", "", *lines, "", ""]) if lines else ""


def classes(path: Path) -> Iterator[tuple[type, Path]]:
    """The public classes that a file defines; none of one that only an engine can import."""
    if FOREIGN.search(path.read_text()):
        return
    module = importlib.import_module(".".join(("kvplan", *path.relative_to(ROOT).with_suffix("").parts)))
    for name, value in vars(module).items():
        if inspect.isclass(value) and value.__module__ == module.__name__ and not name.startswith("_"):
            yield value, path


def line(cls: type, path: Path) -> str:
    return f"- [`{cls.__name__}`](../{path.relative_to(ROOT)}): {meaning(cls)}"


def meaning(cls: type) -> str:
    """The first sentence of a class's docstring; of the keys of a form, what the form is of."""
    if issubclass(cls, FormKeys) and cls is not FormKeys and not cls.__dict__.get("__doc__", "").endswith("."):
        forms = vars(importlib.import_module(cls.__module__)).values()
        return next(
            (f"the keys of {form.what}, read." for form in forms if isinstance(form, Form) and form.of is cls),
            "the keys of a file, read.",
        )
    text = " ".join((cls.__doc__ or "").split())
    sentence = re.match(r".*?\.(?= |$)(?![^(]*\))", text)
    assert sentence, f"{cls.__module__}.{cls.__name__} does not say what it is"
    return sentence[0]


if __name__ == "__main__":
    PAGE.write_text(fresh(PAGE.read_text()))
