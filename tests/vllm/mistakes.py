"""Settings that must not run: each is refused with a code, and no token comes of it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.vllm.cases import Case, Connector, Mistake
from tests.vllm.judge import REFUSED_ONLY, Answer, Outcome, Verdict
from tests.vllm.pair import Pair, Settings
from tests.vllm.process import EngineLost, Launcher
from tests.vllm.requests import Asker

CODE = re.compile(r"\b[A-Z]\d{3}\b")


def run(launcher: Launcher, case: Case, connector: Connector) -> Outcome:
    """Start the pair with the mistake, and ask for one request if it does start."""
    assert isinstance(case.play, Mistake)
    settings = MISTAKES[case.play](launcher.folder, launcher.model(case.setup.model))
    try:
        pair = Pair(launcher, case.setup, connector, settings)
    except EngineLost as error:
        return Outcome([refused(str(error))])
    try:
        answer = Asker(pair, case.name).transfer([7] * 100, reads=False)
        logged = pair.prefill.log.read_text() + pair.decode.log.read_text()
    except TimeoutError as error:
        return Outcome(stopped=f"hung: {error}")
    finally:
        pair.close()
    return Outcome([refused(logged) if answer.verdict is Verdict.REFUSED else Answer(answer.verdict, REFUSED_ONLY)])


def refused(text: str) -> Answer:
    """A refusal is as it should be where it has a code."""
    code = CODE.search(text)
    return Answer(Verdict.REFUSED, REFUSED_ONLY if code else frozenset(), code[0] if code else text[-300:])


def unknown_key(folder: Path, model: Path) -> Settings:
    """Keys in two folders: decode knows prefill, prefill does not know decode."""
    known, stranger = folder / "keys-prefill", folder / "keys-decode"
    kvplan("keys", "prefill", "-o", str(known))
    kvplan("keys", "decode", "-o", str(stranger))
    (stranger / "prefill.key").write_bytes((known / "prefill.key").read_bytes())
    return Settings(
        {"keys": str(known / "prefill.key_secret")},
        {"keys": str(stranger / "decode.key_secret")},
    )


def plan_missing(folder: Path, model: Path) -> Settings:
    none = folder / "no-plans"
    none.mkdir()
    settings: Mapping[str, Any] = {"plans": str(none), "jit": False}
    return Settings(settings, settings)


def layout_differs(folder: Path, model: Path) -> Settings:
    text = kvplan("new", str(model / "config.json"))
    heads = re.search(r"heads: (\d+)  # num_key_value_heads", text)
    assert heads
    path = folder / "one-more-head.yaml"
    path.write_text(text.replace(heads[0], f"heads: {2 * int(heads[1])}").replace("-new", "-other"))
    return Settings({"layout": str(path)}, {})


MISTAKES: Mapping[Mistake, Callable[[Path, Path], Settings]] = {
    Mistake.UNKNOWN_KEY: unknown_key,
    Mistake.PLAN_MISSING: plan_missing,
    Mistake.LAYOUT_DIFFERS: layout_differs,
}


def kvplan(*arguments: str) -> str:
    command = [sys.executable, "-m", "kvplan.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
