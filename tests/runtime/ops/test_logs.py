"""Logs: one line per event whatever a peer sends, facts for those who want them apart, and nothing on stdout."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.paths import ROOT
from tests.runtime.helpers.agents import has_nixl

from kvplan.runtime import errors
from kvplan.runtime.ops.logs import LOG, LONGEST, event, json_lines, line, off_stdout


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """The output of a JSON handler of the runtime's logger."""
    found = io.StringIO()
    handler, level = json_lines(found), LOG.level
    LOG.addHandler(handler)
    LOG.setLevel(logging.DEBUG)
    yield found
    LOG.setLevel(level)
    LOG.removeHandler(handler)


@pytest.mark.parametrize(("value", "text"), [
    (5, "5"), (1.5, "1.5"), (True, "True"), ("tcp://10.0.0.1:7", "tcp://10.0.0.1:7"), ("", '""'), ("a b", '"a b"'),
    ('say "x"', r'"say \"x\""'), ("a=b", '"a=b"'), ("back\\slash", r'"back\\slash"'),
    ("x\nERROR root fine=yes", r'"x\nERROR root fine=yes"'), ("\r\x1b[2J\0", r'"\r\u001b[2J\u0000"'),
    ("\x7f\x9b31m", r'"\u007f\u009b31m"'), ("line\u2028sep", r'"line\u2028sep"'), ("\u202edcba", r'"\u202edcba"'),
    ("é", r'"\u00e9"'), ("\udc80", r'"\udc80"'), ("%s %d", '"%s %d"'), (b"\n", r'''"b'\\n'"'''), (None, "None"),
])  # fmt: skip
def test_values(value: object, text: str) -> None:
    assert line("peer met", {"key": value}) == f"peer met key={text}"


def test_an_error_has_its_code() -> None:
    told = line("load failed", {"error": errors.HandleError("it is gone")})
    assert told == f'load failed error="{errors.HandleError.code}: it is gone"'


def test_every_character_stays_in_its_value() -> None:
    for number in [*range(0x300), 0x2028, 0x2029, 0x202E, 0xD800, 0xFEFF, 0x1F600]:
        found = line("e", {"k": f"a{chr(number)}b", "after": 1})
        assert all(" " <= character <= "~" for character in found), hex(number)
        assert len(shlex.split(found)) == 3, hex(number)


def test_a_long_value_is_cut_and_says_so() -> None:
    found = line("e", {"k": "x" * (LONGEST + 7)})
    assert found.endswith('... (7 more)"')
    assert len(found) < LONGEST + 30


def test_the_record_has_the_facts_and_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    facts: dict[str, Any] = {"name": "p0", "level": 3, "msg": "m", "args": (1,), "message": "%s", "exc_info": True}
    with caplog.at_level(logging.INFO, logger="kvplan.runtime"):
        event(logging.INFO, "peer", **facts)
    (record,) = caplog.records
    assert (record.event, record.facts, record.name) == ("peer", facts, "kvplan.runtime")  # type: ignore[attr-defined]
    assert record.getMessage() == "peer name=p0 level=3 msg=m args=(1,) message=%s exc_info=True"
    assert Path(record.pathname).name == "test_logs.py"


def test_json_lines(stream: io.StringIO) -> None:
    event(logging.WARNING, "refused", peer="x\ny", size=7, rate=float("nan"), path=Path("/a"), time=1)
    event(logging.INFO, "met", peer="\udc80", text="z" * 10_000)
    LOG.info("plain %s", "text")
    first, second, third = (json.loads(one) for one in stream.getvalue().splitlines())
    assert (first["event"], first["level"], first["logger"]) == ("refused", "WARNING", "kvplan.runtime")
    assert first["facts"] == {"peer": "x\ny", "size": 7, "rate": "nan", "path": "/a", "time": 1}
    assert isinstance(first["time"], float)
    assert len(second["facts"]["text"]) < LONGEST + 30
    assert (third["message"], "event" in third) == ("plain text", False)


def test_json_lines_of_records_of_others(stream: io.StringIO) -> None:
    LOG.info("odd", extra={"event": object(), "facts": 5})
    try:
        raise errors.KvplanError("a\nb")
    except errors.KvplanError:
        LOG.exception("failed")
    odd, failed = (json.loads(one) for one in stream.getvalue().splitlines())
    assert "facts" not in odd
    assert failed["traceback"].endswith("KvplanError: a\nb")


def test_json_lines_go_to_stderr() -> None:
    assert json_lines().stream is sys.stderr  # type: ignore[attr-defined]


def test_another_librarys_handler_leaves_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("kvplan.tests.other")
    logger.propagate = False
    logger.handlers = [logging.StreamHandler(sys.stdout), logging.StreamHandler(kept := io.StringIO())]
    try:
        off_stdout("kvplan.tests.other")
        logger.error("word")
        assert capsys.readouterr() == ("", "word\n")
        assert kept.getvalue() == "word\n"
    finally:
        logger.handlers = []


@pytest.mark.parametrize("room", ["runtime", "remote", "store", "fleet", "registry"])
def test_nothing_that_engines_load_prints(room: str) -> None:
    for path in sorted((ROOT / room).rglob("*.py")):
        assert not re.search(r"\bprint\(|sys\.stdout\.write", path.read_text()), path


@cache
def quiet(**environment: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-m", "tests.runtime.helpers.noisy_process"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("environment", [{}, {"NIXL_LOG_LEVEL": "WARN"}, {"UCX_TLS": "tcp"}], ids=str)
def test_stdout_is_empty_after_a_transfer_with_failures(environment: dict[str, str]) -> None:
    if not has_nixl():
        pytest.skip("NIXL is not installed")
    run = quiet(**environment)
    assert run.stdout == ""
    assert run.returncode == 0, run.stderr
    assert "noisy reads=2 failures=6" in run.stderr


def test_stderr_has_only_our_own_lines() -> None:
    """Bare NIXL writes a line for every error that is met, and UCX one per request at the end."""
    if not has_nixl():
        pytest.skip("NIXL is not installed")
    lines = quiet().stderr.splitlines()
    assert lines[-1].startswith("noisy ")
    found = [json.loads(one) for one in lines[:-1]]
    assert [one["event"] for one in found] == ["failed"] * 6
    assert {one["logger"] for one in found} == {"kvplan.runtime"}


WORKERS = """
import sys
from dataclasses import replace
from kvplan.runtime import errors
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, move
from tests.runtime.helpers.worlds import world
made = world(Shape(1), Shape(1), nixl=True)
move(made, ask(made, (0, 12)))
decode, codes = made.decode[0], []
bad = decode.submit(replace(ask(made, (0, 12), name="bad"), tokens=(12, 0)), 5)
made.prefill[0].close()
gone = decode.submit(ask(made, (0, 12), name="gone"), 1)
for transfer in (bad, gone):
    try:
        transfer.wait()
    except errors.KvplanError as error:
        codes.append(error.code)
made.close()
sys.stderr.write(f"failed {len(codes)}\\n")
"""


def test_stdout_is_empty_after_requests_between_workers() -> None:
    if not has_nixl():
        pytest.skip("NIXL is not installed")
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": paths}
    run = subprocess.run(
        [sys.executable, "-c", WORKERS], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.stdout == ""
    assert run.stderr.endswith("failed 2\n"), run.stderr
    assert run.returncode == 0
