"""The list of mutants is of today's code; `make mutants` runs them."""

from __future__ import annotations

import ast

import pytest
from tests.mutants.mutants import Mutant, read
from tests.paths import ROOT

MUTANTS = read()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_text_stands_in_the_source(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    changed = mutant.applied(text)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(text))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_test_is_there(mutant: Mutant) -> None:
    path, name = mutant.test.split("::")
    tree = ast.parse((ROOT / path).read_text())
    assert name.partition("[")[0] in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_a_text_that_moved_is_noticed() -> None:
    mutant = Mutant("none", "a.py", "a = 1", "a = 2", "")
    assert mutant.applied("a = 1\n") == "a = 2\n"
    for text in ("a = 3\n", "a = 1\na = 1\n"):
        with pytest.raises(ValueError, match="mend the list"):
            mutant.applied(text)


def test_no_name_is_given_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
