"""Settings that must not run: each is refused, says why, and no token comes of it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tests.vllm.cases import Case, Connector, Mistake
from tests.vllm.judge import REFUSED_ONLY, Answer, Outcome, Verdict
from tests.vllm.pair import Pair, Settings
from tests.vllm.process import EngineLost, Launcher
from tests.vllm.requests import Asker


@dataclass(frozen=True)
class Wrong:
    """How to make a mistake, in a folder and for a model, and what has to be said of it, by an engine or in a log."""

    settings: Callable[[Path, Path], Settings]
    says: str


def run(launcher: Launcher, case: Case, connector: Connector) -> Outcome:
    """Start the pair with the mistake, and ask for one request if it does start."""
    assert isinstance(case.play, Mistake)
    mistake = MISTAKES[case.play]
    settings = mistake.settings(launcher.folder, launcher.model(case.setup.model))
    try:
        pair = Pair(launcher, case.setup, connector, settings)
    except EngineLost as error:
        return Outcome([refused(mistake, str(error))])
    try:
        answer = Asker(pair, case.name).transfer([7] * 100, reads=False)
        logged = pair.prefill.log.read_text() + pair.decode.log.read_text()
    except TimeoutError as error:
        return Outcome(stopped=f"hung: {error}")
    finally:
        pair.close()
    if answer.verdict is not Verdict.REFUSED:
        return Outcome([replace(answer, allowed=REFUSED_ONLY)])
    return Outcome([refused(mistake, logged)])


def refused(mistake: Wrong, text: str) -> Answer:
    """A refusal is as it should be where it says why."""
    return Answer(Verdict.REFUSED, REFUSED_ONLY if mistake.says in text else frozenset(), text.strip()[-300:])


def unknown_key(folder: Path, model: Path) -> Settings:
    """Keys in two folders: decode knows prefill, prefill knows another engine only."""
    known, stranger = folder / "keys-prefill", folder / "keys-decode"
    kvplan("keys", "prefill", "-o", str(known))
    kvplan("keys", "another", "-o", str(known))
    kvplan("keys", "decode", "-o", str(stranger))
    (stranger / "prefill.key").write_bytes((known / "prefill.key").read_bytes())
    return Settings(
        {"keys": str(known / "prefill.key_secret")},
        {"keys": str(stranger / "decode.key_secret")},
    )


def plan_missing(folder: Path, model: Path) -> Settings:
    """The model is known to both sides; of plans there is an empty folder."""
    none = folder / "no-plans"
    none.mkdir()
    settings = {"plans": str(none), "layout": str(layout(folder / "known", model))}
    return Settings(settings, settings)


def layout_differs(folder: Path, model: Path) -> Settings:
    """Prefill's file says twice the KV heads that the model has."""
    path = layout(folder / "differs", model)
    text = path.read_text()
    heads = re.search(r"heads: (\d+)  # num_key_value_heads", text)
    assert heads
    path.write_text(text.replace(heads[0], f"heads: {2 * int(heads[1])}"))
    return Settings({"layout": str(path)}, {})


def weights_differ(folder: Path, model: Path) -> Settings:
    """Prefill serves a fine-tune: a checkpoint of one shape, of which a sixteenth has other numbers."""
    tuned = folder / "tuned"
    shutil.copytree(model, tuned)
    file = next(tuned.glob("*.safetensors"))
    data = bytearray(file.read_bytes())
    last = len(data) // 16
    data[-last:] = bytes(byte ^ 0x80 for byte in data[-last:])
    file.write_bytes(data)
    return Settings({}, {}, {"prefill": tuned})


def by_the_engine(folder: Path, model: Path) -> Settings:
    """The setup's own engines make it."""
    return Settings({}, {})


def layout(folder: Path, model: Path) -> Path:
    """The model's layout file in `folder`."""
    folder.mkdir()
    text = kvplan("new", str(model / "config.json"))
    path = folder / f"{text.split('model: ')[1].split()[0]}.yaml"
    path.write_text(text)
    return path


MISTAKES: Mapping[Mistake, Wrong] = {
    Mistake.UNKNOWN_KEY: Wrong(unknown_key, "does not let ours in"),
    Mistake.PLAN_MISSING: Wrong(plan_missing, "kvplan compile"),
    Mistake.LAYOUT_DIFFERS: Wrong(layout_differs, "I005"),
    Mistake.WEIGHTS_DIFFER: Wrong(weights_differ, "start both with the same revision"),
    Mistake.SLEEP: Wrong(by_the_engine, "I007"),
    Mistake.NOT_PROBED: Wrong(by_the_engine, "caches of fp8 were not probed"),
}


def kvplan(*arguments: str) -> str:
    command = [sys.executable, "-m", "kvplan.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
