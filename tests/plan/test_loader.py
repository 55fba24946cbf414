import os
from dataclasses import replace
from pathlib import Path

import pytest
from tests.paths import ROOT
from tests.runtime.helpers.plans import Shape, plan

import kvplan.runtime
from kvplan.plan.loader import load_plan
from kvplan.runtime import choose, errors

TEXT = """
from dataclasses import replace
from tests.paths import ROOT
from tests.runtime.helpers.plans import Shape, plan

PLAN = plan(Shape(2), Shape(1))
"""


def write(folder: Path, text: str) -> Path:
    (folder / "plan.py").write_text(text)
    return folder / "plan.py"


def test_a_plan(tmp_path: Path) -> None:
    assert load_plan(write(tmp_path, TEXT)).digest == plan(Shape(2), Shape(1)).digest


@pytest.mark.parametrize(
    ("text", "error", "match"),
    [
        ("", errors.PlanLoadError, "has no PLAN"),
        ("PLAN = 3", errors.PlanLoadError, "has no PLAN"),
        ("PLAN = ", errors.PlanLoadError, "SyntaxError"),
        ("1 / 0", errors.PlanLoadError, "ZeroDivisionError"),
        ("raise SystemExit(3)", errors.PlanLoadError, "SystemExit"),
        ("PLAN = 3\0", errors.PlanLoadError, "null byte"),
        (TEXT + "PLAN = replace(PLAN, digest='0')", errors.PlanFormatError, "plan digest"),
        (TEXT + "PLAN = replace(PLAN, reads=())", errors.PlanFormatError, "plan digest"),
        (TEXT + "PLAN = replace(PLAN, format=99)", errors.PlanFormatError, "plan format 99"),
    ],
)
def test_what_is_no_plan(tmp_path: Path, text: str, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        load_plan(write(tmp_path, text))


@pytest.mark.parametrize(
    ("before", "after"),
    [("end - 1023", "end - 23"), ("max(first, end", "min(first, end"), ("cuts(low, end, 16)", "cuts(low, end, 32)")],
)
def test_a_match_function_changed_by_hand(tmp_path: Path, before: str, after: str) -> None:
    text = (ROOT / "examples/plans/gemma_3_27b/p_tp2__d_tp4.py").read_text()
    assert load_plan(write(tmp_path, text)).functions
    assert before in text
    with pytest.raises(errors.PlanFormatError, match="match function"):
        load_plan(write(tmp_path, text.replace(before, after)))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, "")
    path.write_bytes(b"# coding: latin-1\n# \xe9" + TEXT.encode())
    with pytest.raises(errors.PlanLoadError, match="not UTF-8"):
        load_plan(path)


def test_no_compiled_copy_is_read_or_kept(tmp_path: Path) -> None:
    """A file of the same size and time is another plan all the same."""
    path = write(tmp_path, TEXT)
    about, first = path.stat(), load_plan(path)
    path.write_text(TEXT.replace("Shape(2)", "Shape(4)"))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert load_plan(path).digest == plan(Shape(4), Shape(1)).digest != first.digest
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
