"""The index beside the plans: what it says, what it forgets, and that a compile is written whole or not at all."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.cli.forked import forked

from kvplan.cli.main import main
from kvplan.plan.errors import PlanIndexError
from kvplan.plan.files import folder
from kvplan.plan.files.index import NAME, IndexEntry, parse, pinned
from kvplan.plan.files.module import read
from kvplan.runtime.plans.catalog import Catalog

MODEL = "qwen3-0.6b"


def killed(after: int) -> Callable[[], None]:
    """Have this process killed at its write to the disk number `after`."""

    def patch() -> None:
        left = itertools.count(1)

        def dying(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*given: Any) -> Any:
                if next(left) == after:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*given)

            return call

        os.fsync, Path.replace = dying(os.fsync), dying(Path.replace)  # type: ignore[method-assign]

    return patch


def limited(size: int) -> Callable[[], None]:
    """Let this process write no file that is larger."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run(out: Path, prefill: str = "tp=1", decode: str = "tp=2", *words: str) -> Result:
    return CliRunner().invoke(
        main, ["compile", MODEL, "--prefill", prefill, "--decode", decode, "-o", str(out), *words]
    )


class Compile:
    """A compile in a process of its own."""

    def __init__(self, out: Path, prefill: str, decode: str, before: Callable[[], None] = lambda: None) -> None:
        ours, theirs = os.pipe()
        words = ["compile", MODEL, "--prefill", prefill, "--decode", decode, "-o", str(out)]
        self.said, self.child = os.fdopen(ours), forked(words, theirs, before)
        os.close(theirs)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        with self.said:
            said = self.said.read()
        return os.waitstatus_to_exitcode(os.waitpid(self.child, 0)[1]), said


def entries(out: Path) -> dict[str, IndexEntry]:
    return {f"{one.prefill[1]} -> {one.decode[1]}": one for one in parse((out / NAME).read_bytes(), NAME)}


def everything(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}


def sound(out: Path) -> int:
    """How many plans are found, every one that the index names."""
    catalog = Catalog(out)
    for one in catalog.entries():
        assert catalog.find(one.model, one.model_digest, one.prefill, one.decode).digest == one.plan
    return len(catalog.entries())


def test_what_an_index_says(tmp_path: Path) -> None:
    assert run(tmp_path).exit_code == 0
    assert run(tmp_path, "tp=2", "tp=1", "--elect", "spread").exit_code == 0
    one, spread = (entries(tmp_path)[pair] for pair in ("tp=1 -> tp=2", "tp=2 -> tp=1"))
    assert json.loads((tmp_path / NAME).read_text())["format"] == 1
    assert one.sha256 == pinned((tmp_path / one.path).read_bytes())
    assert (one.model, one.unusual, spread.unusual) == (MODEL, (), ("elect",))
    assert dict(spread.options)["elect"] == "spread"
    assert one.prefill[0] == entries(tmp_path)["tp=2 -> tp=1"].decode[0]
    assert sound_options(tmp_path) == {one.plan, spread.plan}


def sound_options(out: Path) -> set[str]:
    found = set()
    for one in parse((out / NAME).read_bytes(), NAME):
        catalog = Catalog(out, options=dict(one.options))
        found.add(catalog.find(one.model, one.model_digest, one.prefill, one.decode).digest)
    return found


def test_the_same_plans_make_the_same_bytes(tmp_path: Path) -> None:
    pairs = [("tp=1", "tp=2"), ("tp=2", "tp=1"), ("tp=2", "tp=2")]
    for name, order in (("a", pairs), ("b", pairs[::-1])):
        for pair in order:
            assert run(tmp_path / name, *pair).exit_code == 0
    run(tmp_path / "c", "tp=1/2", "tp=1/2")
    (tmp_path / "c" / entries(tmp_path / "c")["tp=1 -> tp=1"].path).unlink()
    assert run(tmp_path / "c").exit_code == 0
    a, b, c = (everything(tmp_path / name) for name in "abc")
    assert a == b == c


def test_an_index_that_is_current_is_not_written(tmp_path: Path) -> None:
    run(tmp_path)
    before = (tmp_path / NAME).stat()
    done = run(tmp_path, "tp=1", "tp=2", "--format", "json")
    after = (tmp_path / NAME).stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert json.loads(done.stdout)["index"] == {"path": str(tmp_path / NAME), "changed": False}


def test_files_that_are_gone_leave_the_index(tmp_path: Path) -> None:
    run(tmp_path, "tp=1/2", "tp=2")
    (tmp_path / entries(tmp_path)["tp=1 -> tp=2"].path).unlink()
    assert run(tmp_path, "tp=2", "tp=2", "--check").exit_code == 1
    run(tmp_path, "tp=2", "tp=2")
    assert set(entries(tmp_path)) == {"tp=2 -> tp=2"}


def test_orphans_leave_the_index(tmp_path: Path) -> None:
    out, deploy = tmp_path / "plans", tmp_path / "deploy.yaml"
    entry = "  - {models: [%s], prefill: [tp=1], decode: [tp=2]}"
    deploy.write_text(f"kvplan: 1\ndeployment: deploy\ntitle: t\nplans:\n{entry % MODEL}\n")
    run(out, "tp=2", "tp=1")
    assert set(entries(out)) == {"tp=2 -> tp=1"}
    assert CliRunner().invoke(main, ["compile", str(deploy), "-o", str(out)]).exit_code == 0
    assert set(entries(out)) == {"tp=1 -> tp=2"}


@pytest.mark.parametrize(("damage", "word"), [(None, "missing: "), ('"sha256": "0', "-      "), ("", "")])
def test_check_reports_the_index(tmp_path: Path, damage: str | None, word: str) -> None:
    run(tmp_path)
    index = tmp_path / NAME
    if damage is None:
        index.unlink()
    elif damage:
        index.write_text(index.read_text().replace('"sha256": "', damage))
    before = everything(tmp_path)
    done, asked = run(tmp_path, "tp=1", "tp=2", "--check"), run(tmp_path, "tp=1", "tp=2", "--check", "--format", "json")
    wrong = damage != ""
    assert (done.exit_code, asked.exit_code) == (wrong, wrong)
    assert word in done.stdout
    assert (str(index) in done.stdout) == wrong
    state = json.loads(asked.stdout)["index"]["state"]
    assert state == ("missing" if damage is None else "stale" if damage else "current")
    assert everything(tmp_path) == before


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff", b'{"format": 2, "plans": []}', None])
@pytest.mark.parametrize("check", [(), ("--check",)])
def test_a_damaged_index_is_not_written_over(tmp_path: Path, data: bytes | None, check: tuple[str, ...]) -> None:
    run(tmp_path)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir() if data is None else (tmp_path / NAME).write_bytes(data)
    before = everything(tmp_path)
    done = run(tmp_path, "tp=2", "tp=2", *check)
    assert (done.exit_code, "error[R006]" in done.stderr, NAME in done.stderr) == (2, True, True)
    assert everything(tmp_path) == before


def test_nothing_to_say_makes_no_directory(tmp_path: Path) -> None:
    assert run(tmp_path / "plans", "tp=3", "tp=1").exit_code == 3
    assert not (tmp_path / "plans").exists()


def test_a_plan_on_disk_that_is_no_text(tmp_path: Path) -> None:
    run(tmp_path)
    path = tmp_path / entries(tmp_path)["tp=1 -> tp=2"].path
    path.write_bytes(b"\xff\xfe")
    done = run(tmp_path, "tp=1", "tp=2", "--check")
    assert (done.exit_code, "\\xff" in done.stdout) == (1, True)
    assert run(tmp_path).exit_code == 0
    assert sound(tmp_path) == 1


def test_directories_of_plans_are_compared_without_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        run(tmp_path / name)
    words = ["diff", str(tmp_path / "a"), str(tmp_path / "b")]
    (tmp_path / "b" / NAME).unlink()
    assert CliRunner().invoke(main, words).exit_code == 0
    (tmp_path / "b" / NAME).write_text("{}")
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, "is no index of format 1" in done.stderr) == (2, True)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 128 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    try:
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(folder)], capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no mount")
    if made.returncode:
        pytest.skip(f"no file system may be mounted: {made.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk(small: Path) -> None:
    """With a page more room each time: refused and everything as before, until there is enough."""
    assert run(small, "tp=1", "tp=2").exit_code == 0
    filler, endings = small / "filler", []
    for room in range(24):
        with filler.open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(bytes(4096))
                except OSError:
                    break
            file.truncate(max(0, file.tell() - room * 4096))
        before = everything(small)
        done = run(small, "tp=1/2", "tp=1/2")
        endings.append(done.exit_code)
        if done.exit_code == 0:
            break
        assert (done.exit_code, "error[R006]" in done.stderr) == (2, True)
        assert "No space left on device" in done.stderr
        assert (everything(small), sound(small)) == (before, 1)
    assert (endings[0], endings[-1]) == (2, 0)
    assert sound(small) == 4


def test_a_file_system_that_is_read_only(small: Path) -> None:
    assert run(small).exit_code == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small)], check=True)
    before = everything(small)
    assert run(small).exit_code == 0
    done = run(small, "tp=2", "tp=2", "--format", "json")
    assert (done.exit_code, json.loads(done.stdout)["error"]["code"]) == (2, "R006")
    assert "Read-only file system" in json.loads(done.stdout)["error"]["message"]
    assert (everything(small), sound(small)) == (before, 1)


@pytest.mark.parametrize("size", [0, 1, 4096])
def test_a_limit_of_the_size_of_files(tmp_path: Path, size: int) -> None:
    run(tmp_path)
    before = everything(tmp_path)
    code, said = Compile(tmp_path, "tp=2", "tp=2", limited(size)).end()
    assert (code, "error[R006]" in said, "Traceback" in said) == (2, True, False)
    assert everything(tmp_path) == before


def test_a_compile_that_is_killed(tmp_path: Path) -> None:
    """At every write to the disk in turn: no plan is wrong, and the next compile puts all right."""
    run(tmp_path, "tp=1", "tp=2")
    path = tmp_path / entries(tmp_path)["tp=1 -> tp=2"].path
    current, old = path.read_text(), path.read_text() + "\n# of an earlier release\n"
    assert read(current, "x.py") == read(old, "x.py")
    whole = everything(tmp_path)
    for after in range(1, 20):
        path.write_text(old)
        (tmp_path / NAME).write_bytes(
            whole[NAME].replace(pinned(current.encode()).encode(), pinned(old.encode()).encode())
        )
        assert sound(tmp_path) == 1
        code, _ = Compile(tmp_path, "tp=1", "tp=2", killed(after)).end()
        if pinned(path.read_bytes()) == entries(tmp_path)["tp=1 -> tp=2"].sha256:
            assert sound(tmp_path) == 1
        else:
            with pytest.raises(PlanIndexError, match=pinned(path.read_bytes())):
                sound(tmp_path)
        assert path.read_text() in (old, current)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert run(tmp_path).exit_code == 0
        assert everything(tmp_path) == whole
    assert code == 0
    assert after > 4


def test_compiles_side_by_side(tmp_path: Path) -> None:
    pairs = [("tp=1", "tp=2"), ("tp=2", "tp=1"), ("tp=1", "tp=1"), ("tp=2", "tp=2")]
    compiles = [Compile(tmp_path, *pair) for pair in pairs]
    assert [one.end()[0] for one in compiles] == [0] * 4
    assert sound(tmp_path) == 4
    assert len(everything(tmp_path)) == 5


def test_a_directory_that_another_compile_holds(tmp_path: Path) -> None:
    with folder.locked(tmp_path), pytest.raises(PlanIndexError, match="held by another compile"):
        folder.locked(tmp_path, 0.1).__enter__()
    folder.write(tmp_path, {"a.py": "1"}, ["a.py"])
    assert (tmp_path / "a.py").read_text() == "1"


def test_a_directory_where_a_plan_must_be(tmp_path: Path) -> None:
    run(tmp_path)
    (tmp_path / "qwen3_0_6b" / "p_tp2__d_tp2.py").mkdir()
    before = everything(tmp_path)
    done = run(tmp_path, "tp=2", "tp=1/2")
    assert (done.exit_code, "Is a directory" in done.stderr) == (2, True)
    assert everything(tmp_path) == before


def test_what_a_killed_compile_left_is_removed(tmp_path: Path) -> None:
    run(tmp_path)
    left = [tmp_path / f".{NAME}{folder.HALF}", tmp_path / "qwen3_0_6b" / f".p_old__d_old.py{folder.HALF}"]
    for path in left:
        path.write_text("half")
    assert run(tmp_path, "tp=2", "tp=2").exit_code == 0
    assert not any(path.exists() for path in left)
    assert sound(tmp_path) == 2
