"""Carry out cases with real engines: tokens of a pair against those of one engine. Runs in SGLang's environment.

python -m tests.sglang.play FOLDER NAME…        a line of JSON for each case: its name, and what became of it
"""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.sglang import engine as engines
from tests.sglang.cases import CASES, Case
from tests.sglang.engine import Engine
from tests.vllm import models

COUNT, GAP, FIRST_PORT, STEP = 16, 1e-3, 24000, 40
ROOM = 1000


def main(folder: Path, names: Sequence[str]) -> None:
    engines.imported()
    for number, case in enumerate(case for case in CASES if case.name in names):
        try:
            word = run(folder, case, FIRST_PORT + STEP * number)
        except (RuntimeError, TimeoutError) as error:
            word = f"crashed: {error}"
        print(json.dumps({"case": case.name, "word": word}), flush=True)


def run(folder: Path, case: Case, port: int) -> str:
    """`right`, `refused`, or what was wrong."""
    prompts, started = drawn(case.lengths), list[Engine]()
    try:
        alone = begin(started, folder, case.model, {"page_size": 16, "port": port + 2}, {})
        alone.answer()
        expected = [ask(alone, prompt)[0] for prompt in prompts]
        alone.stop()
        common = {"disaggregation_transfer_backend": "kvplan", "disaggregation_bootstrap_port": port + 10}
        environment = {"KVPLAN_CONFIG": json.dumps(dict(case.config))}
        prefill = begin(started, folder, case.model, {**common, "disaggregation_mode": "prefill", "port": port,
                        **case.prefill}, {**environment, **case.prefill_environment})  # fmt: skip
        decode = begin(started, folder, case.decode_model or case.model, {**common, "disaggregation_mode": "decode",
                       "port": port + 1, "disaggregation_decode_retraction_backup": "cpu_tensor",
                       **case.decode}, {**environment, **case.decode_environment})  # fmt: skip
        prefill.answer()
        decode.answer()
        return judged(case, expected * case.times, list(through(case, prompts, prefill, decode, port + 10)))
    finally:
        for one in started:
            one.stop()


def begin(
    started: list[Engine], folder: Path, model: str, options: Mapping[str, Any], environment: Mapping[str, str]
) -> Engine:
    log = folder / f"{options['port']}.log"
    made = Engine({"model_path": str(checkpoint(folder, model)), **options}, dict(environment), log)
    started.append(made)
    return made


def checkpoint(folder: Path, model: str) -> Path:
    """A small model's folder. One called `…_other` has the same configuration, and other weights."""
    place, base = folder / "models" / model, model.removesuffix("_other")
    if not (folder / "models" / base).exists():
        (folder / "models" / base).mkdir(parents=True)
        models.make(base, str(folder / "models" / base))
    if model != base and not place.exists():
        shutil.copytree(folder / "models" / base, place)
        change(place / "model.safetensors")
    return place


def change(weights: Path) -> None:
    """Halve every weight that is a vector."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(weights)
    save_file({name: value / 2 if value.dim() == 1 else value for name, value in tensors.items()}, weights)


def drawn(lengths: Sequence[int]) -> list[list[int]]:
    dice = random.Random(1)
    return [[dice.randrange(3, 500) for _ in range(length)] for length in lengths]


def ask(one: Engine, ids: Any, **rooms: Any) -> list[dict[str, Any]]:
    one.ask(ids=ids, count=COUNT, **rooms)
    return answers(one)


def answers(one: Engine) -> list[dict[str, Any]]:
    got = one.answer(60)
    return got.get("answers", [{"error": got.get("error", "no answer")}])


def through(case: Case, prompts: list[list[int]], prefill: Engine, decode: Engine, port: int) -> Any:
    """The answers of decode. As a router does, both engines are asked at once."""
    sent: list[Any] = [prompts] if case.together else prompts * case.times
    for number, ids in enumerate(sent):
        rooms = {"host": "127.0.0.1", "port": port, "room": ROOM + number}
        if case.together:
            rooms = {key: [value] * len(ids) for key, value in rooms.items()}
            rooms["room"] = [ROOM + turn for turn in range(len(ids))]
        for one in (prefill, decode):
            one.ask(ids=ids, count=COUNT, **rooms)
        answers(prefill)
        yield from answers(decode)


def judged(case: Case, expected: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """What a case comes to: all requests are right, or all are refused for the reason that it names."""
    if case.refused:
        wrong = [one for one in found if case.refused not in (one.get("error") or "")]
        return "refused" if found and not wrong else f"not refused: {wrong}"
    right = sum(alike(want, one) for want, one in zip(expected, found, strict=False))
    if right == len(expected) == len(found):
        return "right"
    return f"{right} of {len(expected)} right; {[one.get('error') for one in found]}"


def alike(want: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether tokens are the same, and logprobs nearly so."""
    pairs = zip(want["logprobs"], found.get("logprobs") or [], strict=False)
    return want["tokens"] == found.get("tokens") and all(abs(one - other) < GAP for one, other in pairs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
