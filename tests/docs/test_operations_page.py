"""docs/operations.md: its defaults, codes, metrics, alerts and links are those of the code."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import fields
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from tests.docs.test_vllm_page import default, rows
from tests.fleet.test_records import record
from tests.paths import DOCS, ROOT
from tests.runtime.helpers.plans import Shape
from tests.runtime.helpers.requests import ask, check, filled
from tests.runtime.helpers.waiting import until
from tests.runtime.helpers.worlds import world

from kvplan.cli.codes import all_codes
from kvplan.cli.main import main
from kvplan.cli.on_call import signs, signs_of
from kvplan.compiler.api import compile_pair
from kvplan.dsl.library import load
from kvplan.fleet.records import EngineRecord
from kvplan.integrations.shared.config import PORT
from kvplan.integrations.vllm.measures import NAMES
from kvplan.plan.planes import planes
from kvplan.plan.types import FORMAT
from kvplan.runtime.control.messages import CLAIMS_PER_LEASE, SILENT_LEASES
from kvplan.runtime.control.outbox import MOST_BYTES
from kvplan.runtime.decode.worker import DecodeWorker
from kvplan.runtime.ops.metrics import COUNTERS, GAUGES, HISTOGRAMS, Metric
from kvplan.runtime.ops.prometheus import PREFIX, RATIO
from kvplan.runtime.owner import STUCK
from kvplan.runtime.prefill.peers import MOST
from kvplan.runtime.prefill.worker import PrefillWorker
from kvplan.runtime.transfer.limits import Limits

PAGE = (DOCS / "operations.md").read_text()
LOGGING = ("runtime", "store", "fleet", "registry", "integrations")
UNITS = {"s": 1, "MiB": 1 << 20, "GiB": 1 << 30}
SETTING = re.compile(r"\| `([\w.]+)(?:\((\w+)=…\))?` \| ([\d,]+)(?: (\w+))? \|")
SERIES = re.compile(r"\b(?:vllm:)?kvplan_\w+")
SELECTOR = re.compile(r'\b((?:vllm:)?kvplan_\w+)\{(\w+)=~?"([^"]*)"\}')


def vllm_series() -> set[str]:
    """The connector's series in Prometheus, read from the source, which needs vLLM; counters end in `_total` there."""
    source = (ROOT / "integrations/vllm/stats.py").read_text()
    named = set(re.findall(r"vllm:kvplan_\w+", source))
    assert len(named) == len(NAMES)
    return {f"{name}_total" if "_num_" in name else name for name in named}


METRICS = {
    **{f"{PREFIX}{metric.name}_total": metric for metric in COUNTERS},
    **{f"{PREFIX}{metric.name}": metric for metric in (*HISTOGRAMS, *GAUGES, RATIO)},
    **{name: Metric(name, "") for name in vllm_series()},
}


class SetEvent:
    """A compute event that has completed when a thread says so."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def query(self) -> bool:
        return self._event.is_set()


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def alerts() -> list[dict[str, str]]:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def code_default(name: str, parameter: str) -> Any:
    """The default of `Limits.requests`, of a worker's parameter, or of a key of the connector."""
    if parameter:
        worker = {"PrefillWorker": PrefillWorker, "DecodeWorker": DecodeWorker}[name]
        return inspect.signature(worker).parameters[parameter].default
    return getattr(Limits(), name.removeprefix("Limits.")) if "." in name else default(name)


def test_every_default_is_that_of_the_code() -> None:
    told = SETTING.findall(section("Sizing"))
    assert {name for name, _, _, _ in told} >= {f"Limits.{field.name}" for field in fields(Limits)}
    assert len(told) == len(rows(section("Sizing")))
    for name, parameter, number, unit in told:
        assert int(number.replace(",", "")) * UNITS.get(unit, 1) == code_default(name, parameter), name


def test_numbers_in_sentences_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert CLAIMS_PER_LEASE == 6
    assert "every sixth of a lease" in text
    assert SILENT_LEASES == 3
    assert "silent for three leases" in text
    assert f"at most {MOST:,} connections" in text
    assert f"takes up to {MOST_BYTES >> 20} MiB" in text
    assert f"lasted more than {STUCK:.0f} s" in text
    assert f"this one reads plan format {FORMAT}" in text
    assert f"from `port` on ({PORT}; on loopback any free ports)" in text
    requests, lease = Limits().requests, default("lease_s")
    assert f"{requests:,} requests for {lease:.0f} s are {requests / lease:.0f} a second" in text
    assert f"kvplan_holds > 0.8 * {requests}'" in text


def test_its_example_of_a_block_is_what_a_side_has() -> None:
    assert "Llama 3.1 8B with `tp=2,block=32` has 32 tensors of 65,536 B: 2 MiB per block" in " ".join(PAGE.split())
    side = compile_pair(load(), "llama-3.1-8b", "tp=4", "tp=2,block=32").plan.decode
    strides = [plane.stride for plane in planes(side.workers[0])]
    assert strides == [65_536] * 32
    assert {group.ratio for group in side.groups} == {1}


def test_every_metric_is_told_once_and_there_is_no_other() -> None:
    told = [name for cells in rows(section("Metrics")) for name in SERIES.findall(cells[0])]
    assert sorted(told) == sorted(METRICS)
    parts = re.sub(r"_bucket\b", "", PAGE)
    assert set(SERIES.findall(parts)) <= {*METRICS, PREFIX}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_alerts_ask_for_labels_that_there_are(alert: dict[str, str]) -> None:
    assert alert.keys() <= {"alert", "expr", "for"}
    for name in SERIES.findall(alert["expr"]):
        assert name.removesuffix("_bucket") in METRICS
        assert not name.endswith(("_total", "_bucket")) or re.search(rf"(rate|increase)\({name}[\[{{]", alert["expr"])
    for name, label, values in SELECTOR.findall(alert["expr"]):
        assert label == METRICS[name].label
        assert set(values.split("|")) <= {*METRICS[name].values, "other"}


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: str(alert["alert"]))
def test_every_alert_says_what_to_do(alert: dict[str, str]) -> None:
    assert signs_of(alert["alert"])


def logged_events() -> set[str]:
    """The names of all events that the sources log without debugging, and those that are handed on by name."""
    found = set[str]()
    for path in (path for room in LOGGING for path in (ROOT / room).rglob("*.py")):
        for call in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)):
            what = ast.unparse(call.func)
            names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            level = ast.unparse(call.args[0]) if call.args else ""
            if what in ("logs.failure", "_logged") or (what == "logs.event" and level != "logs.DEBUG"):
                found |= set(names[:1])
    return found


def test_every_event_of_the_log_has_a_row() -> None:
    events = logged_events()
    assert len(events) > 50
    assert events - {name for sign in signs() for name in re.findall(r"`([^`]+)`", sign.seen)} == set()


def test_every_event_of_the_table_is_logged() -> None:
    told = [name for cells in rows(section("Log lines")) for name in re.findall(r"`([^`]+)`", cells[0])]
    assert sorted(told) == sorted({*told} & logged_events())


class Announced:
    """A fleet that keeps the states that it is told, and whether workers drained when it was."""

    def __init__(self, workers: list[Any]) -> None:
        self.workers, self.told = workers, list[tuple[str, bool]]()

    def announce(self, record: EngineRecord) -> None:
        self.told.append((record.state, any(worker.half.endpoint.drains for worker in self.workers)))

    def close(self) -> None:
        self.told.append(("gone", True))


@pytest.mark.parametrize("side", ["prefill", "decode"])
def test_who_leaves_as_the_page_says_breaks_no_request(side: str) -> None:
    (recipe,) = [text for text in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "def leave" in text]
    names: dict[str, Any] = {}
    exec(compile(recipe, "operations.md", "exec"), names)
    made = world(Shape(2), Shape(1))
    try:
        made.decode[0].start()
        request, event = ask(made, (0, 12)), Event()
        filled(made, request)
        for worker in made.prefill:
            worker.hold(request.id, request.prefill, after=SetEvent(event))
        moved = made.decode[0].submit(request, 50)
        leaving: list[Any] = list(made.prefill if side == "prefill" else made.decode)
        fleet = Announced(leaving)
        thread = Thread(target=names["leave"], args=(fleet, record(side), leaving, 60.0, 0.01), daemon=True)
        thread.start()
        until(lambda: all(worker.half.endpoint.drains for worker in leaving))
        event.set()
        thread.join(60)
        assert not thread.is_alive()
        until(lambda: moved.ended)
        assert (moved.state, moved.error) == ("done", None)
        check(made, 0, request)
        assert fleet.told == [("draining", False), ("gone", True)]
    finally:
        made.close()


def test_codes_and_links_are_there() -> None:
    codes = set(re.findall(r"\b[A-Z]\d{3}\b", PAGE))
    assert codes
    assert codes <= set(all_codes())
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE)
    assert links
    assert not [link for link in links if not (DOCS / link).exists()]
    assert "docs/operations.md" in (ROOT / "README.md").read_text()
    assert "operations.md" in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.full
def test_the_answer_of_the_simulator_is_what_it_prints() -> None:
    (told,) = re.findall(r"```console\n\$ kvplan simulate-fleet examples/fleet.yaml\n(.*?)```", PAGE, re.DOTALL)
    result = CliRunner().invoke(main, ["simulate-fleet", str(ROOT / "examples/fleet.yaml")])
    assert result.exit_code == 0, result.output
    assert result.output == told
    (best,) = [line for line in told.splitlines() if line.startswith("*")]
    assert f"\nbest: {best.split()[1]}; p90 to the first token is " in told


def test_what_logs_are_quoted_is_logged() -> None:
    rooms = (ROOT / "runtime", ROOT / "integrations")
    source = "\n".join(path.read_text() for room in rooms for path in room.rglob("*.py"))
    named = ("keys changed", "key refused", "key file ignored", "push chosen", "load failed", "load refused")
    for event in (*named, "blocks freed early", "parameters refused"):
        assert f"`{event}`" in PAGE
        assert f'"{event}"' in source
