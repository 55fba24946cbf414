"""A prefill and a decode engine that run under one connector, and what is free in their pools."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.vllm.cases import Connector, Setup, Side
from tests.vllm.process import Engine, Launcher, wait_until

TIMEOUT_S = 30
LAYOUTS = Path(__file__).parent / "layouts"
ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}
# First ports of engines; runs beside each other begin anywhere.
PORTS = itertools.count(random.randrange(18000, 28000, 40), 40)
# On cores a later stage has no place for what comes to it (`assert self.intermediate_tensors is not None`) unless the
# model was run for compilation; mode 1 compiles nothing here, as TORCHDYNAMO_DISABLE is set.
PIPELINE = {"enforce_eager": False, "compilation_config": 1}


AS_NIXL = {"kv_connector": "NixlConnector", "kv_connector_module_path": "kvplan.integrations.vllm.as_nixl"}
# Tiers by name, each kept in a folder: one in memory, whose worker is tests/vllm/tier.py, and vLLM's example of one.
TIERS: Mapping[str, Callable[[Path], dict[str, Any]]] = {
    "memory": lambda folder: {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "spec_name": "CoresOffloadingSpec",
            "spec_module_path": "tests.vllm.tier",
            "cpu_bytes_to_use": 1 << 28,
        },
    },
    "files": lambda folder: {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": str(folder)},
    },
}


@dataclass(frozen=True)
class Settings:
    """Further settings of kvplan's connector, by side; and a side's checkpoint, if it is not
    the setup's.
    """

    prefill: Mapping[str, Any]
    decode: Mapping[str, Any]
    checkpoints: Mapping[str, Path] = field(default_factory=dict)


class Pair:
    """Both engines of a setup. Raises EngineLost where one does not start."""

    def __init__(
        self, launcher: Launcher, setup: Setup, connector: Connector, more: Settings = Settings({}, {})
    ) -> None:
        self.launcher, self.setup, self.connector, self.more = launcher, setup, connector, more
        self.ports = {side: next(PORTS) for side in ROLES}
        self.engines: dict[str, Engine] = {}
        try:
            for side in ROLES:
                self._start(side)
            for engine in self.engines.values():
                engine.wait_ready()
            self.free = {side: free(engine) for side, engine in self.engines.items()}
        except BaseException:
            self.close()
            raise

    @property
    def prefill(self) -> Engine:
        return self.engines["prefill"]

    @property
    def decode(self) -> Engine:
        return self.engines["decode"]

    def restart(self, side: str) -> None:
        """Start an engine that was killed again, with the addresses it had."""
        self.engines.pop(side).close()
        self._start(side)
        self.engines[side].wait_ready()

    def leaked(self, seconds: float) -> dict[str, int]:
        """Blocks by side that are not free again in time."""
        missing: dict[str, int] = {}
        for side, engine in self.engines.items():
            if not wait_until(lambda side=side, engine=engine: free(engine) == self.free[side], seconds):
                missing[side] = self.free[side] - free(engine)
        return missing

    def close(self) -> None:
        for engine in self.engines.values():
            engine.close()

    def _start(self, side: str) -> None:
        about: Side = getattr(self.setup, side)
        llm = {
            "model": str(self.more.checkpoints.get(side) or self.launcher.model(self.setup.model)),
            "dtype": self.setup.dtype,
            "tensor_parallel_size": about.tp,
            **(PIPELINE if about.pp > 1 and self.setup.device == "cpu" else {}),
            "pipeline_parallel_size": about.pp,
            "decode_context_parallel_size": about.dcp,
            "block_size": about.block,
            "num_gpu_blocks_override": about.blocks,
            "max_model_len": about.max_model_len,
            "max_num_batched_tokens": about.chunk,
            "max_num_seqs": min(64, about.chunk),
            "enable_prefix_caching": self.setup.prefix_caching,
            "speculative_config": self._drafts(about),
            **dict(self.setup.llm),
        }
        settings = dict(self.setup.environment + about.environment)
        environment = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(self.ports[side]), **settings}
        config = {"llm": {key: value for key, value in llm.items() if value is not None}, "kv": self._transfer(side)}
        self.engines[side] = self.launcher.engine(f"{self.connector.value}-{side}", config, environment)

    def _drafts(self, about: Side) -> dict[str, Any] | None:
        drafts = dict(about.drafts)
        model = {"model": str(self.launcher.model(drafts["model"]))} if "model" in drafts else {}
        return {**drafts, **model} or None

    def _transfer(self, side: str) -> dict[str, Any]:
        """The engine's --kv-transfer-config: the connector, or all of them in vLLM's own that has several."""
        moving = self._moving(side)
        if not self.setup.tier:
            return moving
        tier = TIERS[self.setup.tier](self.launcher.folder / f"tier-{self.ports[side]}")
        every = [tier, moving] if self.setup.tier_first else [moving, tier]
        common = {name: moving[name] for name in ("kv_role", "kv_buffer_device", "kv_load_failure_policy")}
        return {**common, "kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": every}}

    def _moving(self, side: str) -> dict[str, Any]:
        """The configuration of the connector that moves caches between the engines."""
        setup = self.setup
        common = {
            "kv_role": "kv_both" if setup.next_turn else ROLES[side],
            "kv_buffer_device": setup.device,
            "kv_load_failure_policy": setup.policy,
        }
        if self.connector is Connector.NIXL:
            name = "NixlPushConnector" if self.setup.mode == "push" else "NixlConnector"
            return {
                **common,
                "kv_connector": name,
                "kv_connector_extra_config": {"kv_lease_duration": self.setup.lease_s},
            }
        named = AS_NIXL if setup.as_nixl else {"kv_connector": "KvplanConnector"}
        return {**common, **named, "kv_connector_extra_config": self._kvplan(side)}

    def _kvplan(self, side: str) -> dict[str, Any]:
        more = getattr(self.more, side)
        settings = {
            "mode": self.setup.mode,
            "port": self.ports[side] + 10,
            "lease_s": self.setup.lease_s,
            "timeout_s": TIMEOUT_S,
            **more,
        }
        if self.setup.next_turn:
            settings["bidirectional_kv_xfer"] = True
        if self.setup.layout:
            settings["layout"] = str(LAYOUTS / f"{self.setup.layout}.yaml")
        if self.setup.strategy:
            settings["plan_options"] = {"strategy": self.setup.strategy}
        return settings


def free(engine: Engine) -> int:
    return int(engine.call("count")["free"])
