"""docs/vllm.md: it has every key of the connector, what routers see and the metrics; its configurations are taken."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.paths import DOCS, ROOT

from kvplan.cli.codes import all_codes
from kvplan.cli.main import main
from kvplan.dsl.library import load
from kvplan.integrations import vllm as connectors
from kvplan.integrations.shared.config import PORT, ConnectorConfig, read_config
from kvplan.integrations.vllm.metadata import GroupName, RemotePrefill, transfer_params

PAGE = (DOCS / "vllm.md").read_text()
# Words of the page's tables for a default that is no JSON value.
WORDS: Mapping[str, Any] = {"found": "", "none": None}


def section(name: str) -> str:
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line] for line in lines]


def default(name: str) -> Any:
    (field,) = [each for each in fields(ConnectorConfig) if each.name == name]
    return field.default_factory() if field.default_factory is not MISSING else field.default


def test_every_key_is_told_with_its_default() -> None:
    told = {key.strip("`"): value for key, value, _ in rows(section("Configuration"))}
    assert list(told) == [each.name for each in fields(ConnectorConfig)]
    assert told.pop("port") == f"free ports on loopback, else `{PORT}`"
    for name, value in told.items():
        said = WORDS[value] if value in WORDS else json.loads(value.strip("`"))
        assert (said or None) == (default(name) or None), name


def test_what_routers_see_is_what_is_sent() -> None:
    held = RemotePrefill("engine", "request", "host", 1, 2, (GroupName("full"),), ((1,),))
    told = {name for keys, _ in rows(section("What routers see")) for name in re.findall(r"`(\w+)`", keys)}
    assert told == set(transfer_params(held, 1))


def every_configuration() -> list[Any]:
    return [json.loads(text) for text in re.findall(r"--kv-transfer-config '(\{.*?\})'\n", PAGE, re.DOTALL)]


def configurations() -> list[Any]:
    return [said for said in every_configuration() if said["kv_connector"] == "KvplanConnector"]


def test_those_that_have_another_name_or_other_connectors_beside_it_are_taken() -> None:
    others = [said for said in every_configuration() if said["kv_connector"] != "KvplanConnector"]
    entries = [entry for said in others for entry in said["kv_connector_extra_config"].get("connectors", [said])]
    own = [entry for entry in entries if entry["kv_connector"] != "OffloadingConnector"]
    assert [entry["kv_connector"] for entry in own] == ["KvplanConnector", "NixlConnector"]
    for entry in own:
        read_config(entry["kv_connector_extra_config"])


@pytest.mark.parametrize("number", range(7))
def test_its_configurations_are_taken(number: int) -> None:
    said = configurations()
    assert len(said) == 7
    wanted = load().engine("vllm").serve
    assert wanted is not None
    assert dict(wanted.connector).items() <= said[number].items()
    assert said[number]["kv_role"] in wanted.roles.values()
    read_config(said[number].get(wanted.extra, {}))


def test_configurations_for_items_name_the_connector_that_is_registered() -> None:
    said = [json.loads(text) for text in re.findall(r"--ec-transfer-config '(\{.*?\})'", PAGE)]
    assert {each["ec_role"] for each in said} == {"ec_producer", "ec_consumer"}
    assert all(each["ec_connector"] in connectors.__all__ for each in said)


def test_its_layout_of_items_is_compiled(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(kvplan: 1\nmodel: our-encoder\n.*?)```", PAGE, re.DOTALL)
    (tmp_path / "our-encoder.yaml").write_text(text)
    (command,) = re.findall(r"    kvplan (compile our-encoder\.yaml .*) -o plans\n", PAGE)
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(tmp_path)
        run = CliRunner().invoke(main, command.split())
    assert run.exit_code == 0, run.output


def test_its_strict_configuration_is_strict() -> None:
    (text,) = re.findall(r'"kv_connector_extra_config": (\{"strict".*?\})\n', PAGE)
    assert read_config(json.loads(text)).strict


def test_codes_and_links_are_there() -> None:
    assert set(re.findall(r"\b[A-Z]\d{3}\b", PAGE)) <= set(all_codes())
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE)
    assert links
    assert not [link for link in links if not (DOCS / link).exists()]
    readme, architecture = (ROOT / "README.md").read_text(), (DOCS / "architecture.md").read_text()
    assert "docs/vllm.md" in readme
    assert "(vllm.md)" in architecture
