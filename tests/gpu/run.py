"""Every step of the GPU kit, each in a process of its own and with a time limit; the answers as JSON and as a page.

`gpu.sh` in the kit calls it. Without a GPU, all of it runs in host memory as a rehearsal.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
TAIL = 3000
KVPLAN = (sys.executable, "-m", "kvplan.cli")
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
DEVICE = "tests/gpu/test_device.py"


@dataclass(frozen=True, slots=True)
class Step:
    """A command and its time limit. `{folder}` is the folder of files, `{memory}` is DRAM or VRAM."""

    name: str
    command: tuple[str, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended: `code` is its exit status, None where it ran out of time; `said` is the end of what it said."""

    name: str
    code: int | None
    seconds: float
    said: str


STEPS = (
    Step("register memory that other processes can map", (*PYTEST, DEVICE, "-k", "map"), 40),
    Step("pull and push, equal pages", (*PYTEST, DEVICE, "-k", "equal_pages"), 60),
    Step("pull and push, direct and staged, checksums of every token", (*PYTEST, DEVICE, "-k", "every_token"), 90),
    Step("direct and staged write the same bytes", (*PYTEST, DEVICE, "-k", "strategies"), 60),
    Step("wrong bytes are found", (*PYTEST, DEVICE, "-k", "wrong_bytes"), 40),
    Step("nothing moves before an event", (*PYTEST, DEVICE, "-k", "event"), 40),
    Step("host and device planes in one worker", (*PYTEST, DEVICE, "-k", "one_worker"), 60),
    Step("engines outlive peers that are killed", (*PYTEST, "tests/gpu/test_deaths.py", "--durations=0"), 240),
    Step("times", (*KVPLAN, "bench", "{bench}", "--pairs", "9", "-o", "{folder}/bench.json"), 240),
    Step("a machine's profile", (*KVPLAN, "calibrate", "--memory", "{memory}", "-o", "{folder}/profile.yaml"), 60),
    Step("tests that are skipped without a device", (*PYTEST, "tests/cli/commands/test_calibrate.py"), 60),
)


def main(folder: Path, words: list[str]) -> int:
    """Run the steps whose name has one of the words, all without any; how many did not pass."""
    memory = "VRAM" if gpu() else "DRAM"
    outcomes = [carried_out(step, folder, memory) for step in STEPS if not words or any(w in step.name for w in words)]
    write(folder, outcomes)
    return sum(one.code != 0 for one in outcomes)


def carried_out(step: Step, folder: Path, memory: str) -> Outcome:
    """Run a step, and end it with all that it has started when its time is over."""
    for old in ("bench.json", "profile.yaml"):
        if old in " ".join(step.command):
            (folder / old).unlink(missing_ok=True)
    bench = "gpu" if memory == "VRAM" else "homogeneous"
    command = [word.format(folder=folder, memory=memory, bench=bench) for word in step.command]
    began, log = time.monotonic(), folder / "step.log"
    print(f"{step.name} …", flush=True)
    with log.open("w+", encoding="utf-8") as said:
        process = subprocess.Popen(command, cwd=ROOT, stdout=said, stderr=said, start_new_session=True)
        code = waited(process, step.seconds)
    text = log.read_text(encoding="utf-8", errors="replace")[-TAIL:]
    log.unlink()
    outcome = Outcome(step.name, code, round(time.monotonic() - began, 1), text)
    print(f"    {ending(outcome)}", flush=True)
    return outcome


def waited(process: subprocess.Popen[bytes], seconds: float) -> int | None:
    """The exit status, None where the time ran out."""
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return None


def ending(outcome: Outcome) -> str:
    """How a step ended, in words."""
    if outcome.code == 0:
        return f"passed in {outcome.seconds} s"
    why = "ran out of time" if outcome.code is None else f"failed with status {outcome.code}"
    return f"{why} after {outcome.seconds} s"


def gpu() -> str:
    """The GPU's name, empty where there is none."""
    try:
        import torch
    except ImportError:
        return ""
    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else ""


def machine() -> dict[str, object]:
    """The hardware and software of this run."""
    names = ("torch", "nixl", "nixl-cu13", "nixl-cu12", "numpy")
    versions = {name: found for name in names if (found := installed(name))}
    return {"gpu": gpu(), "python": platform.python_version(), "cores": os.cpu_count(), **versions}


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def write(folder: Path, outcomes: list[Outcome]) -> None:
    """Write gpu.json and gpu.md."""
    rows = json.loads(text)["rows"] if (text := read(folder / "bench.json")) else []
    profile, found = read(folder / "profile.yaml"), machine()
    whole = {"machine": found, "steps": [asdict(one) for one in outcomes], "times": rows, "profile": profile}
    (folder / "gpu.json").write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    (folder / "gpu.md").write_text(page(found, outcomes, rows, profile), encoding="utf-8")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def page(found: dict[str, object], outcomes: list[Outcome], rows: list[dict[str, str]], profile: str) -> str:
    """The page: what ran, how each step ended, the times, the profile."""
    title = found["gpu"] or "No GPU: a rehearsal in the host's memory"
    facts = ", ".join(f"{name} {value}" for name, value in found.items() if name != "gpu")
    steps = [f"| {one.name} | {ending(one)} |" for one in outcomes]
    times = [f"| {row['area']} | {row['name']} | {row['value']} | {row['spread']} |" for row in rows]
    failed = [f"## {one.name}\n\n```\n{one.said}\n```\n" for one in outcomes if one.code != 0]
    return "\n".join([
        f"# {title}", "", facts, "", "| step | |", "|---|---|", *steps, "",
        "| | what | measured | spread |", "|---|---|---|---|", *times, "",
        "```yaml", profile.rstrip(), "```", "", *failed,
    ])  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
