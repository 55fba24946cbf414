"""examples/kubernetes: objects that Kubernetes takes, that name each other, and that start engines as `doctor` says."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator
from tests.docs.kubernetes_schema import OBJECTS
from tests.paths import EXAMPLES, FIXTURES

from kvplan.cli.main import main
from kvplan.integrations.shared.config import read_config

FOLDER = EXAMPLES / "kubernetes"
Plain = dict[str, Any]
ENGINES = ("prefill", "decode")


def documents() -> list[Plain]:
    return [each for path in sorted(FOLDER.glob("*.yaml")) for each in yaml.safe_load_all(path.read_text())]


def one(kind: str, name: str) -> Plain:
    (found,) = [each for each in documents() if each["kind"] == kind and each.get("metadata", {}).get("name") == name]
    return found


def kustomization() -> Plain:
    (found,) = [each for each in documents() if each["kind"] == "Kustomization"]
    return found


def container(of: Plain) -> Plain:
    (found,) = of["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def errors(of: Plain) -> list[str]:
    return [error.json_path for error in Draft202012Validator(OBJECTS[of["kind"]]).iter_errors(of)]


@pytest.mark.parametrize("kind", OBJECTS)
def test_schemas_are_schemas(kind: str) -> None:
    Draft202012Validator.check_schema(OBJECTS[kind])


def test_every_object_is_one() -> None:
    assert sorted(each["kind"] for each in documents()) == sorted(
        ["Kustomization", "PersistentVolumeClaim", "Job", *("Deployment", "Service") * 3]
    )
    assert [errors(each) for each in documents()] == [[]] * len(documents())


@pytest.mark.parametrize(
    ("spoil", "place"),
    [
        (lambda pod: pod["containers"][0].pop("image"), "$.spec.template.spec.containers[0]"),
        (lambda pod: pod["containers"][0].update(imagee="x"), "$.spec.template.spec.containers[0]"),
        (lambda pod: pod["containers"][0]["ports"][0].update(containerPort=70000), "containers[0].ports[0]"),
        (lambda pod: pod["containers"][0]["ports"][0].update(name="Much_too_long_for_a_port"), "ports[0].name"),
        (lambda pod: pod["containers"][0]["resources"]["limits"].update(memory="64 Gi"), "limits.memory"),
        (lambda pod: pod["volumes"][0].update(emptyDir={}), "volumes[0]"),
    ],
)
def test_what_is_none_is_found(spoil: Callable[[Plain], object], place: str) -> None:
    spoiled = copy.deepcopy(one("Deployment", "prefill"))
    spoil(spoiled["spec"]["template"]["spec"])
    assert [found for found in errors(spoiled) if place in found]


@pytest.mark.parametrize("name", ENGINES)
def test_names_lead_somewhere(name: str) -> None:
    deployment, service = one("Deployment", name), one("Service", name)
    pod = deployment["spec"]["template"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert {port["targetPort"] for port in service["spec"]["ports"]} <= {
        p["name"] for p in container(deployment)["ports"]
    }
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert [mount["name"] for mount in container(deployment)["volumeMounts"]] == list(volumes)
    assert (
        volumes["plans"]["persistentVolumeClaim"]["claimName"]
        == one("PersistentVolumeClaim", "kvplan-plans")["metadata"]["name"]
    )
    assert volumes["keys"]["secret"]["secretName"] in {each["name"] for each in kustomization()["secretGenerator"]}


def test_all_files_are_applied() -> None:
    assert {*kustomization()["resources"], "kustomization.yaml"} == {path.name for path in FOLDER.glob("*.yaml")}


@pytest.mark.parametrize(("name", "peer"), [ENGINES, ENGINES[::-1]])
def test_an_engine_has_its_own_secret_and_the_peers_public_key(name: str, peer: str) -> None:
    files = {each["name"]: each["files"] for each in kustomization()["secretGenerator"]}[f"kvplan-{name}-keys"]
    assert set(files) == {f"keys/{name}.key", f"keys/{name}.key_secret", f"keys/{peer}.key"}


def transfer(args: list[str]) -> Plain:
    found: Plain = json.loads(args[args.index("--kv-transfer-config") + 1])
    return found


@pytest.mark.parametrize("name", ENGINES)
def test_the_connector_takes_its_configuration(name: str) -> None:
    of = container(one("Deployment", name))
    config = read_config(transfer(of["args"])["kv_connector_extra_config"])
    mounts = {mount["name"]: mount["mountPath"] for mount in of["volumeMounts"]}
    assert (str(config.plans), config.keys) == (mounts["plans"], mounts["keys"])
    given = {each["name"]: each["value"] for each in of["env"] if "value" in each}
    assert read_config(transfer(of["args"])["kv_connector_extra_config"], given).strict
    named = [each for each in of["env"] if "valueFrom" in each]
    fields = {f"$({each['name']})": each["valueFrom"]["fieldRef"]["fieldPath"] for each in named}
    assert (fields[config.host], fields[transfer(of["args"])["engine_id"]]) == ("status.podIP", "metadata.name")
    ports = [port["containerPort"] for port in of["ports"] if port["name"].startswith("kvplan-")]
    workers = of["resources"]["limits"]["nvidia.com/gpu"] if name == "prefill" else 0
    assert ports == [config.port + number for number in range(workers)]


@pytest.mark.parametrize("name", ENGINES)
def test_engines_announce_themselves_in_the_etcd_that_is_there(name: str) -> None:
    config = read_config(transfer(container(one("Deployment", name))["args"])["kv_connector_extra_config"])
    service = one("Service", "etcd")
    (port,) = service["spec"]["ports"]
    assert config.fleet_url == f"http://{service['metadata']['name']}:{port['port']}"
    assert f"--advertise-client-urls={config.fleet_url}" in container(one("Deployment", "etcd"))["args"]
    (opened,) = container(one("Deployment", "etcd"))["ports"]
    assert (port["targetPort"], port["port"]) == (opened["name"], opened["containerPort"])


def test_engines_are_started_as_the_doctor_says_and_the_plan_is_theirs() -> None:
    words = ["doctor", str(FIXTURES / "configs" / "llama-3.1-8b.json"), "--tp", "4", "--peer-tp", "2"]
    apart = ["--host", "10.0.0.1", "--peer-host", "10.0.0.2", "--no-machine"]
    said = CliRunner().invoke(main, [*words, "--peer-options", "block=32", *apart, "--format", "json"])
    told = json.loads(said.stdout)
    for name, side in zip(ENGINES, ("side", "peer"), strict=True):
        args, start = container(one("Deployment", name))["args"], told["sides"][side]["start"]
        assert {f"{flag}={value}" for flag, value in start["flags"].items()} == {
            word for word in args if word.startswith("--") and "=" in word and not word.startswith("--port")
        }
        assert start["variables"] == {}
        extra = "kv_connector_extra_config"
        own = {extra: {}, "engine_id": "of each pod"}
        assert {**transfer(args), **own} == {**start["connector"], **own}
    (command,) = (step["run"] for step in told["steps"] if step["run"].startswith("kvplan compile "))
    compiled = container(one("Job", "kvplan-compile"))["command"]
    assert compiled[:-1] == command.split()[:-1]
    assert {mount["mountPath"] for mount in container(one("Job", "kvplan-compile"))["volumeMounts"]} == {compiled[-1]}
