import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.paths import ROOT
from tests.runtime.helpers.plan_texts import module_text
from tests.runtime.helpers.plans import Shape, plan

import kvplan.runtime
from kvplan.plan.loader import load_plan
from kvplan.runtime import choose, errors

TEXT = module_text(plan(Shape(2), Shape(1)))
WINDOWS = (ROOT / "examples/plans/gemma_3_27b/p_tp2__d_tp4.py").read_text()
LONG_NAMES = (ROOT / "examples/plans/deepseek_v4_flash/p_tp2_blhnc_block256__d_tp1_blnhc_block256.py").read_text()


def write(folder: Path, text: str) -> Path:
    (folder / "plan.py").write_text(text)
    return folder / "plan.py"


def test_a_plan(tmp_path: Path) -> None:
    made = load_plan(write(tmp_path, TEXT))
    assert replace(made, digest="", functions="") == replace(plan(Shape(2), Shape(1)), digest="", pairs=made.pairs)


@pytest.mark.parametrize("path", sorted((ROOT / "examples/plans").rglob("*.py")), ids=lambda path: path.stem)
def test_every_example(path: Path) -> None:
    assert load_plan(path).digest in path.read_text()


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "defines no PLAN"),
        ("PLAN = 3", "only tables and match functions"),
        ("PLAN = ", "SyntaxError"),
        ("1 / 0", "only tables and match functions"),
        ("raise SystemExit(3)", "only tables and match functions"),
        (TEXT + "\0", "the character"),
        (TEXT + "(" * 10_000, "not a plan of this version"),
        (TEXT.replace('PLAN_DIGEST = "', 'PLAN_DIGEST = "0'), "plan digest"),
        (TEXT.replace("Loop(", "Place("), "a value is a number, a text, a tuple or a constructor"),
        (TEXT.replace("    format=1,", "    format=99,"), "plan format 99"),
        (TEXT.replace("    format=1,", "    format=1, more=1,"), "not a plan of this version: TypeError"),
        (TEXT.replace("    format=1,", "    format=True,"), "a value is"),
        (TEXT.replace("    format=1,", "    format='1',"), "plan format 1"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, text: str, match: str) -> None:
    assert text != TEXT
    with pytest.raises(errors.PlanFormatError, match=match):
        load_plan(write(tmp_path, text))


ANY_CODE = {
    "a decorator": ("def kv(", "@print\ndef kv("),
    "a decorator of its own": ("def kv(", "_shift = lambda f: f\n@_shift\ndef kv("),
    "a default": ("d_shard: int) -> Runs", "d_shard: int = print()) -> Runs"),
    "an annotation": ("first: int, end", "first: print(), end"),
    "another result": (") -> Runs:", ") -> print():"),
    "a class": ("def kv(", "class Runs:\n    pass\n\n\ndef kv("),
    "another import": ("NOTIFY:", "import os\nNOTIFY:"),
    "a star": ("    Blocks,", "    *,"),
    "another name": ("    Blocks,", "    Blocks as Runs,"),
    "a helper bound again": ("NOTIFY:", "cuts = slots\nNOTIFY:"),
    "a constructor bound again": ("NOTIFY:", "Runs = Blocks\nNOTIFY:"),
    "a walrus": ("= ((),)", "= ((A := ()),)"),
    "a comprehension": ("= ((),)", "= tuple(print() for a in ((),))"),
    "a call": ("= ((),)", "= (print(),)"),
    "an attribute": ("= ((),)", "= (().__class__,)"),
    "a lambda": ("= ((),)", "= (lambda: 0,)"),
    "an f-string": ("= ((),)", "= (f'{print()}',)"),
    "arithmetic": ("= ((),)", "= ((),) * 10**10"),
    "a range beyond any model": ("= ((),)", "= (tuple(range(10**9)),)"),
    "a condition": ("NOTIFY:", "if True:\n    NOTIFY = ()\nNOTIFY:"),
    "a deletion": ("NOTIFY:", "del READS\nNOTIFY:"),
    "a loop": ("NOTIFY:", "for A in (): pass\nNOTIFY:"),
    "two targets": ("PREFILL = ", "PREFILL = EXTRA = "),
    "a function more": ("def kv(", "def more(first, end):\n    return Runs\n\n\ndef kv("),
    "a carriage return": ("NOTIFY:", "A = 1\rNOTIFY:"),
    "a form feed": ("def kv(", "\x0cdef kv("),
    "a line separator": ("def kv(", "# \u2028\ndef kv("),
    "an async function": ("def kv(", "async def kv("),
    "an inner function": ("    return Runs", "    def more(): return 0\n    return Runs"),
    "a global": ("    return Runs", "    global cuts\n    return Runs"),
    "unused code": ("    return Runs", "    print()\n    return Runs"),
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
        ("end - 1023", "end - 23"),
        ("max(first, end", "min(first, end"),
        ("cuts(low, end, 16)", "cuts(low, end, 32)"),
        ("    return Runs(p_block", "\treturn Runs(p_block"),
        ('    """Runs of', '    """Other runs of'),
    ],
)
def test_a_match_function_changed_by_hand(tmp_path: Path, before: str, after: str) -> None:
    assert before in WINDOWS
    with pytest.raises(errors.PlanFormatError):
        load_plan(write(tmp_path, WINDOWS.replace(before, after)))


def test_a_body_behind_a_head_of_several_lines_is_compared_too(tmp_path: Path) -> None:
    """The digest of a plan's functions leaves such bodies out."""
    head, _, behind = LONG_NAMES.partition("\n) -> Runs:\n")
    assert behind
    changed = f"{head}\n) -> Runs:\n{behind.replace('cuts(', 'cuts(1 + ', 1)}"
    with pytest.raises(errors.PlanFormatError, match="is not what its groups need"):
        load_plan(write(tmp_path, changed))


def test_functions_given_to_other_pairs(tmp_path: Path) -> None:
    """No digest says which pair has which function."""
    swapped = TEXT.replace("4, kv)", "4, state)").replace("0, state)", "0, kv)")
    assert swapped != TEXT
    with pytest.raises(errors.PlanFormatError, match="uses another function"):
        load_plan(write(tmp_path, swapped))


def test_an_error_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(errors.PlanFormatError, match=r"plan\.py:\d+: only tables"):
        load_plan(write(tmp_path, TEXT.replace("NOTIFY:", "import os\nNOTIFY:")))


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
        "Abandoned", "Arrived", "Blocks", "Broken", "Catalog", "Counters", "DecodeWorker", "Expired", "Hub", "Identity",
        "InMemory", "Jit", "Keys", "LeaseEvent", "Limits", "Memory", "Nixl", "Peer", "Plain", "Plan", "Pool",
        "PrefillWorker", "Released", "Request", "Ring", "Sample", "Slot", "Transfer", "choose", "load_plan", "scales",
        "views",
    ]  # fmt: skip
    assert all(getattr(kvplan.runtime, name) for name in kvplan.runtime.__all__)
    with pytest.raises(AttributeError):
        _ = kvplan.runtime.absent


def test_codes_are_permanent_and_unlike() -> None:
    kinds = [
        value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.KvplanError)
    ]
    codes = [kind.code for kind in kinds]
    assert len(set(codes)) == len(codes)
