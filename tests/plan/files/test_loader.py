import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.paths import ROOT
from tests.runtime.helpers.plan_texts import module_text
from tests.runtime.helpers.plans import Shape, plan

import kvplan.fleet.errors
import kvplan.runtime
import kvplan.store.errors
from kvplan.plan.files.loader import load_plan
from kvplan.runtime import choose, errors

TEXT = module_text(plan(Shape(2), Shape(1)))
WINDOWS = (ROOT / "examples/plans/gemma_3_27b/p_tp2__d_tp4.py").read_text()


def write(folder: Path, text: str) -> Path:
    (folder / "plan.py").write_text(text)
    return folder / "plan.py"


def test_a_plan(tmp_path: Path) -> None:
    made = load_plan(write(tmp_path, TEXT))
    assert made == plan(Shape(2), Shape(1))


@pytest.mark.parametrize("path", sorted((ROOT / "examples/plans").rglob("*.py")), ids=lambda path: path.stem)
def test_every_example(path: Path) -> None:
    assert load_plan(path).digest in path.read_text()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "defines no PLAN"),
        ("PLAN = 3", "kvplan writes nothing like 'PLAN = 3' into a plan"),
        ("PLAN = ", "SyntaxError"),
        ("1 / 0", "writes nothing like '1 / 0'"),
        ("raise SystemExit(3)", r"writes nothing like 'raise SystemExit\(3\)'"),
        (TEXT + "\0", "the character"),
        (TEXT + "(" * 10_000, "not a plan of this version"),
        (TEXT.replace(' digest="', ' digest="0'), "prefill side digest"),
        (TEXT.replace("Loop(", "Place("), "a value is a number, a text, a tuple or a constructor"),
        (TEXT.replace("format=3,", "format=99,"), "plan format 99"),
        (TEXT.replace("format=3,", "format=3, more=1,"), "not a plan of this version: TypeError"),
        (TEXT.replace("format=3,", "format=True,"), "a value is"),
        (TEXT.replace("format=3,", "format='3',"), "plan format 3"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, text: str, match: str) -> None:
    assert text != TEXT
    with pytest.raises(errors.PlanFormatError, match=match):
        load_plan(write(tmp_path, text))


ANY_CODE = {
    "a decorator": ("def reads(", "@print\ndef reads("),
    "a decorator of its own": ("def reads(", "_shift = lambda f: f\n@_shift\ndef reads("),
    "a default": ("def reads()", "def reads(a=print())"),
    "arguments": ("def reads()", "def reads(*a, **b)"),
    "an annotation": ("def reads()", "def reads(a: print() = 0)"),
    "another result": (") -> Side:", ") -> print():"),
    "no result": (") -> Side:", "):"),
    "a class": ("def reads(", "class Runs:\n    pass\n\n\ndef reads("),
    "another import": ("GROUP_PAIRS =", "import os\nGROUP_PAIRS ="),
    "a star": ("import Group,", "import *,"),
    "another name": ("import Group,", "import Group as Loop,"),
    "a constructor bound again": ("GROUP_PAIRS =", "Table = Loop\nGROUP_PAIRS ="),
    "a function bound again": ("GROUP_PAIRS =", "reads = prefill\nGROUP_PAIRS ="),
    "an annotated constant": ("GROUP_PAIRS =", "GROUP_PAIRS: print() ="),
    "a walrus": ("GROUP_PAIRS =", "A = ((B := ()),)\nGROUP_PAIRS ="),
    "a comprehension": ("GROUP_PAIRS =", "A = tuple(print() for a in ((),))\nGROUP_PAIRS ="),
    "a comprehension with a condition": (
        "GROUP_PAIRS =",
        'A = (*(GroupPair(name) for name in ("a",) if print()),)\nGROUP_PAIRS =',
    ),
    "two loops": ("GROUP_PAIRS =", 'A = (*(GroupPair(name) for name in ("a",) for name in ("a",)),)\nGROUP_PAIRS ='),
    "another variable": ("GROUP_PAIRS =", 'A = (*(GroupPair(GroupPair) for GroupPair in ("a",)),)\nGROUP_PAIRS ='),
    "too few values": (
        "GROUP_PAIRS =",
        'A = (*(GroupPair(name) for name, layers, plane in (("a", 1),)),)\nGROUP_PAIRS =',
    ),
    "a star of a call": ("GROUP_PAIRS =", "A = (*print(),)\nGROUP_PAIRS ="),
    "a call": ("GROUP_PAIRS =", "A = (print(),)\nGROUP_PAIRS ="),
    "an attribute": ("GROUP_PAIRS =", "A = (().__class__,)\nGROUP_PAIRS ="),
    "a lambda": ("GROUP_PAIRS =", "A = (lambda: 0,)\nGROUP_PAIRS ="),
    "an f-string": ("GROUP_PAIRS =", "A = (f'{print()}',)\nGROUP_PAIRS ="),
    "arithmetic": ("GROUP_PAIRS =", "A = ((),) * 10**10\nGROUP_PAIRS ="),
    "a range beyond any model": ("GROUP_PAIRS =", "A = (tuple(range(10**9)),)\nGROUP_PAIRS ="),
    "a range of more than can be counted": ("GROUP_PAIRS =", f"A = (tuple(range({1 << 63})),)\nGROUP_PAIRS ="),
    "a condition": ("GROUP_PAIRS =", "if True:\n    A = ()\nGROUP_PAIRS ="),
    "a deletion": ("GROUP_PAIRS =", "del GROUP_PAIRS\nGROUP_PAIRS ="),
    "a loop": ("GROUP_PAIRS =", "for A in (): pass\nGROUP_PAIRS ="),
    "two targets": ("GROUP_PAIRS =", "GROUP_PAIRS = EXTRA ="),
    "a function more": ("def reads(", "def more() -> Side:\n    return Side()\n\n\ndef reads("),
    "a function that nobody calls": ("reads=reads()", "reads=()"),
    "a function that calls itself": ("    return (", "    return (*reads(),"),
    "a carriage return": ("GROUP_PAIRS =", "A = 1\rGROUP_PAIRS ="),
    "a form feed": ("def reads(", "\x0cdef reads("),
    "a line separator": ("def reads(", "# \u2028\ndef reads("),
    "an async function": ("def reads(", "async def reads("),
    "an inner function": ("    return Side", "    def more(): return 0\n    return Side"),
    "a global": ("    return Side", "    global GROUP_PAIRS\n    return Side"),
    "unused code": ("    return Side", "    print()\n    return Side"),
    "a docstring": ("    return Side", '    """Text."""\n    return Side'),
}


@pytest.mark.parametrize("change", ANY_CODE)
def test_whatever_could_run_is_refused(tmp_path: Path, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = ANY_CODE[change]
    assert before in TEXT
    with pytest.raises(errors.PlanFormatError):
        load_plan(write(tmp_path, TEXT.replace(before, after, 1)))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("keep=1023", "keep=23"),
        ("Needs(keep=1023)", "Needs(chunk=1023)"),
        ('GroupPair("full", page_rows=16)', 'GroupPair("full", page_rows=8)'),
        ('GroupPair("full", page_rows=16)', 'GroupPair("full", page_rows=16, rows=2)'),
        ('*(Group(name, "tokens", tokens=16, kernel=16)', '*(Group(name, "tokens", tokens=16, kernel=8)'),
        ("(0, 7, 14,", "(0, 8, 14,"),
    ],
)
def test_what_blocks_are_matched_by_changed_by_hand(tmp_path: Path, before: str, after: str) -> None:
    assert before in WINDOWS
    with pytest.raises(errors.PlanFormatError, match="digest is"):
        load_plan(write(tmp_path, WINDOWS.replace(before, after)))


def test_an_error_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(errors.PlanFormatError, match=r"plan\.py:\d+: kvplan writes nothing like"):
        load_plan(write(tmp_path, TEXT.replace("GROUP_PAIRS =", "import os\nGROUP_PAIRS =")))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(b"# coding: latin-1\n# \xe9" + TEXT.encode())
    with pytest.raises(errors.PlanLoadError, match="not UTF-8"):
        load_plan(path)


def test_no_compiled_copy_is_read_or_kept(tmp_path: Path) -> None:
    """A file of the same size and time is another plan all the same."""
    other = module_text(plan(Shape(4), Shape(1)))
    size = max(len(TEXT), len(other))
    path = write(tmp_path, TEXT.ljust(size, "\n"))
    about, first = path.stat(), load_plan(path)
    path.write_text(other.ljust(size, "\n"))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert load_plan(path).digest != first.digest
    assert [file.name for file in tmp_path.iterdir()] == ["plan.py"]


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(errors.PlanLoadError, match="is no Python file"):
        load_plan(tmp_path / "absent.py")
    (tmp_path / "plan.txt").write_text(TEXT)
    with pytest.raises(errors.PlanLoadError, match="is no Python file"):
        load_plan(tmp_path / "plan.txt")


def test_choose_goes_by_digests() -> None:
    plans = [plan(Shape(2), Shape(1)), plan(Shape(1), Shape(1))]
    one = plans[1]
    assert choose(plans, one.model_digest, one.prefill.digest, one.decode.digest) is one
    with pytest.raises(errors.DigestError, match="p -> d"):
        choose(plans, "x", one.prefill.digest, one.decode.digest)
    with pytest.raises(errors.DigestError, match="none"):
        choose([], "x", "y", "z")
    assert replace(one, title="another").digest == one.digest


def test_the_public_api() -> None:
    assert kvplan.runtime.__all__ == [
        "Blocks", "Catalog", "Counters", "DecodeWorker", "Hub", "Identity",
        "InMemory", "Jit", "Keys", "Limits", "Memory", "Nixl", "Peer", "Plain", "Plan", "Pool",
        "PrefillWorker", "Released", "Request", "Ring", "Sample", "Slot", "Transfer", "choose", "load_plan",
        "revision_of", "scales", "views",
    ]  # fmt: skip
    assert all(getattr(kvplan.runtime, name) for name in kvplan.runtime.__all__)
    with pytest.raises(AttributeError):
        _ = kvplan.runtime.absent


def test_codes_are_permanent_and_unlike() -> None:
    values = [value for room in (errors, kvplan.store.errors, kvplan.fleet.errors) for value in vars(room).values()]
    kinds = {value for value in values if isinstance(value, type) and issubclass(value, errors.KvplanError)}
    codes = [kind.code for kind in kinds]
    assert {"R001", "R010", "R061", "R070"} <= set(codes)
    assert len(set(codes)) == len(codes)
