"""The files of `make mutants` match today's code, with the names and verdicts of cosmic-ray's session."""

from __future__ import annotations

import ast
from typing import Any

import pytest
import yaml
from tests.mutants.__main__ import counts, unexplained
from tests.mutants.session import COPIED, HERE, Module, Mutant, modules, read
from tests.paths import ROOT

MODULES = modules()
TEXT = """
class Row:
    def wide(self, n):
        return n > 1 if n else n > 2

def wide(n):
    return n > 3
"""
DIFF = "--- mutation diff ---\n--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-    a < b\n+    a <= b\n     c"


WHOLE = ("plan", "compiler/pair", "compiler/prove", "runtime/protocol")


def test_every_module_of_these_folders_is_listed_and_none_twice() -> None:
    paths = [module.path for module in MODULES]
    assert len(set(paths)) == len(paths)
    found = {str(path.relative_to(ROOT)) for folder in WHOLE for path in (ROOT / folder).rglob("*.py")}
    assert {path for path in found if not path.endswith("__init__.py")} <= {*paths}


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.path)
def test_a_module_and_its_tests_are_there(module: Module) -> None:
    assert (ROOT / module.path).is_file()
    for test in module.tests:
        path, _, name = test.removeprefix("--deselect=").partition("::")
        text = (ROOT / path).read_text() if name else ""
        assert (ROOT / path).exists()
        assert not name or f"def {name.partition('[')[0]}(" in text


def test_a_copy_has_every_package() -> None:
    packages = {path.resolve().name for path in (ROOT / "src/kvplan").iterdir() if path.is_symlink()}
    assert packages <= {*COPIED}


def test_survivors_are_explained_once_and_stand_in_functions_that_are_there() -> None:
    groups = yaml.safe_load((HERE / "survivors.yaml").read_text())
    for path, listed in groups.items():
        assert path in {module.path for module in MODULES}
        names = [name for group in listed for name in group["mutants"]]
        assert len(set(names)) == len(names) > 0
        assert all(group["why"] for group in listed)
        known = {node.name for node in ast.walk(ast.parse((ROOT / path).read_text())) if hasattr(node, "name")}
        assert {part for name in names for part in name.split()[0].split(".")} <= known | {"module"}


def entry(operator: str, line: int, column: int, occurrence: int, **result: Any) -> tuple[Any, Any]:
    spec = {"operator_name": f"core/{operator}", "start_pos": [line, column], "occurrence": occurrence}
    whole = {"worker_outcome": "normal", "test_outcome": "killed", "output": "", "diff": DIFF}
    return {"mutations": [spec]}, {**whole, **result}


def test_mutants_are_numbered_within_function_and_operator() -> None:
    found = read(TEXT, [
        entry("Gt_GtE", 4, 30, 1, test_outcome="survived"),
        entry("Gt_GtE", 4, 17, 0, worker_outcome="skipped", test_outcome=None, output=None, diff=None),
        entry("AddNot", 4, 24, 0, output="timeout"),
        entry("Gt_GtE", 7, 13, 2),
        entry("NumberReplacer", 1, 0, 0),
    ])  # fmt: skip
    assert [(mutant.name, mutant.outcome) for mutant in found] == [
        ("module NumberReplacer 1", "killed"),
        ("Row.wide Gt_GtE 1", "skipped"),
        ("Row.wide AddNot 1", "timeout"),
        ("Row.wide Gt_GtE 2", "survived"),
        ("wide Gt_GtE 1", "killed"),
    ]
    assert found[3].diff == "    -    a < b\n    +    a <= b"
    assert counts(found) == "4 mutants: 2 killed, 1 timeout, 1 survived"


def test_what_is_not_listed_and_what_is_listed_in_vain_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {"a.py": {"f AddNot 1": "equal", "f AddNot 2": "equal"}}
    monkeypatch.setattr("tests.mutants.__main__.survivors", lambda: listed)
    module, known = Module("a.py", ()), Mutant("f AddNot 1", "survived", "")
    assert unexplained(module, [known, Mutant("f AddNot 2", "skipped", "")]) == []
    found = [known, Mutant("f AddNot 2", "killed", ""), Mutant("g AddNot 1", "survived", "    +x")]
    assert unexplained(module, found) == [
        "  survives, not in survivors.yaml: g AddNot 1\n    +x",
        "  in survivors.yaml, does not survive: f AddNot 2",
    ]
    assert unexplained(module, [known]) == ["  in survivors.yaml, does not survive: f AddNot 2"]
    assert unexplained(Module("b.py", ()), []) == []
