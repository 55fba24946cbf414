"""Two engines that a case names, and one that is alone: started, restarted, asked as a router asks, and compared."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from tests.sglang.cases import Case
from tests.sglang.engine import Engine
from tests.sglang.machines import Machine
from tests.vllm import models

ANSWER_S, IDLE_S = 120.0, 20.0
Part = Literal["prefill", "decode"]
ENGINE = "sglang"
PARTS: tuple[Part, Part] = ("prefill", "decode")
Tokens = list[int]


@dataclass
class Pair:
    """The engines of a case, whose ports begin at `port`; what they write goes to `folder`."""

    folder: Path
    case: Case
    port: int
    backend: str
    machine: Machine
    engines: dict[str, Engine] = field(default_factory=dict)
    started: bool = False
    # How requests ended, and seconds until the first token of each that decode answered.
    seen: Counter[str] = field(default_factory=Counter)
    first: list[float] = field(default_factory=list)
    error: str = ""
    _rooms: int = 1000

    def start(self) -> None:
        """Start both. Raises EngineEndedError, TimeoutError."""
        if self.case.layout is not None:
            self._prepare(self.case.layout)
        for part in PARTS:
            self.begin(part)
        for part in PARTS:
            self.engines[part].ready()
        self.started = True

    def alone(self, prompts: Sequence[Tokens]) -> list[dict[str, Any]]:
        """The answers of one engine without any other."""
        one = self._started("alone", self.case.model, {"page_size": 16, "port": self.port + 2}, {})
        one.ready()
        found = [one.answer(one.ask(ids=prompt, count=self.case.count))["answers"][0] for prompt in prompts]
        one.stop()
        return found

    def begin(self, part: Part) -> None:
        """Begin to start an engine; an earlier one has ended."""
        case, prefills = self.case, part == "prefill"
        common = {
            "disaggregation_transfer_backend": self.backend,
            "disaggregation_bootstrap_port": self.port + 10,
            "disaggregation_mode": part,
            "port": self.port + (0 if prefills else 1),
        }
        own = case.prefill if prefills else {"disaggregation_decode_retraction_backup": "cpu_tensor", **case.decode}
        config = {name: value.replace("@", str(self.folder)) if isinstance(value, str) else value
                  for name, value in case.config.items()}  # fmt: skip
        environment = case.prefill_environment if prefills else case.decode_environment
        model = case.model if prefills else case.decode_model or case.model
        self._started(part, model, {**common, **own}, {"KVPLAN_CONFIG": json.dumps(config), **environment})

    def restart(self, part: Part) -> None:
        self.engines[part].stop()
        self.begin(part)
        self.engines[part].ready()

    def stop(self) -> None:
        for one in self.engines.values():
            one.stop()

    def alike(self, want: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
        return alike(want, found, self.machine.gap)

    def room(self) -> int:
        self._rooms += 1
        return self._rooms

    def ask(self, part: Part, ids: Any, room: Any) -> int:
        """Ask one of them, in a room of a request or in rooms of several."""
        many = isinstance(room, list)
        host, port = ("127.0.0.1", self.port + 10)
        where = {"host": [host] * len(room), "port": [port] * len(room)} if many else {"host": host, "port": port}
        return self.engines[part].ask(ids=ids, count=self.case.count, room=room, **where)

    def both(self, ids: Any, count: int = 0) -> tuple[int, int]:
        """Ask both at once, as a router does: the numbers at prefill and at decode. `count` are prompts at once."""
        room = [self.room() for _ in range(count)] if count else self.room()
        return self.ask("prefill", ids, room), self.ask("decode", ids, room)

    def answers(self, part: Part, number: int) -> list[dict[str, Any]]:
        got = self.engines[part].answer(number, ANSWER_S)
        self.first += [got["first"]] if part == "decode" and got.get("first") else []
        return got.get("answers") or [{"error": got.get("error", "no answer")}]

    def idle(self, part: Part) -> str:
        """Wait until an engine has given back all of its pools; what it has not given back, empty if all is well."""
        end, one = time.monotonic() + IDLE_S, self.engines[part]
        while True:
            taken = one.answer(one.ask(pools=True), ANSWER_S)
            if taken == {"tokens": 0, "requests": 0}:
                return "" if "leak detected" not in one.log.read_text(errors="replace") else f"{part}: a leak is logged"
            if time.monotonic() > end:
                return f"{part} has not given back {taken}"
            time.sleep(0.2)

    def _prepare(self, changes: Mapping[str, int]) -> None:
        """Write the layout of the model, in the elements that engines keep it in, and compile the plans of the case."""
        layout, plans = self.folder / "layout.yaml", self.folder / "plans"
        config = json.loads((checkpoint(self.folder, self.case.model) / "config.json").read_text())
        said = self.folder / "config.json"
        said.write_text(json.dumps({**config, "dtype": self.machine.options["dtype"], **changes}))
        layout.unlink(missing_ok=True)
        kvplan = (sys.executable, "-m", "kvplan.cli")
        # 32-bit elements, which these engines really have, put a layout in doubt.
        subprocess.run([*kvplan, "new", str(said), "-o", str(layout), "--accept-doubts"], check=True)
        for sides in self.case.compiled:
            prefill, decode = (f"engine={ENGINE},tp=1,block={block}" for block in sides)
            command = ["compile", str(layout), "--prefill", prefill, "--decode", decode, "-o", str(plans)]
            subprocess.run([*kvplan, *command], check=True)

    def _started(self, name: str, model: str, options: Mapping[str, Any], environment: Mapping[str, str]) -> Engine:
        path = {"model_path": str(checkpoint(self.folder, model))}
        log, every = self.folder / f"{options['port']}.log", {**self.machine.options, **path, **options}
        made = Engine(partial(self.machine.start, every, dict(environment), log), log)
        self.engines[name] = made
        return made


# Changes of configurations for SGLang on a CPU, compared with those for other engines, by the model's suffix.
CHANGES = {
    "_yarn": {
        "moe_layer_freq": 1,
        "rope_scaling": {"type": "deepseek_yarn", "rope_type": "deepseek_yarn", "factor": 1.0, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096, "beta_fast": 32,
                         "beta_slow": 1},
    }
}  # fmt: skip


def checkpoint(folder: Path, model: str) -> Path:
    """A small model's folder. One called `…_other` has the same configuration, and other weights.

    With a suffix of CHANGES it has another configuration, and no weights.
    """
    suffix = next((suffix for suffix in CHANGES if model.endswith(suffix)), "")
    place, base = folder / "models" / model, model.removesuffix("_other").removesuffix(suffix)
    if not (folder / "models" / base).exists():
        (folder / "models" / base).mkdir(parents=True)
        models.make(base, str(folder / "models" / base))
    if suffix and not place.exists():
        place.mkdir()
        config = json.loads((folder / "models" / base / "config.json").read_text())
        (place / "config.json").write_text(json.dumps({**config, **CHANGES[suffix]}))
    elif model != base and not place.exists():
        shutil.copytree(folder / "models" / base, place)
        _change(place / "model.safetensors")
    return place


def _change(weights: Path) -> None:
    """Halve every weight that is a vector."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(weights)
    save_file({name: value / 2 if value.dim() == 1 else value for name, value in tensors.items()}, weights)


def drawn(lengths: Sequence[int], seed: int = 1) -> list[Tokens]:
    """Prompts of these lengths."""
    dice = random.Random(seed)
    return [[dice.randrange(3, 500) for _ in range(length)] for length in lengths]


def alike(want: Mapping[str, Any], found: Mapping[str, Any], gap: float) -> bool:
    """Whether tokens are the same, and logprobs nearly so. A model that is certain of every token tells nothing."""
    pairs = zip(want["logprobs"], found.get("logprobs") or [], strict=False)
    near = any(want["logprobs"]) and all(abs(one - other) < gap for one, other in pairs)
    return near and want["tokens"] == found.get("tokens")
