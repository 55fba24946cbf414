"""A plans directory without a worker's side stops the worker before its memory is registered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from kvplan.cli.main import main
from kvplan.compiler.api import side_of
from kvplan.compiler.bind.bind import bind
from kvplan.dsl.library import load
from kvplan.integrations.shared.config import read_config
from kvplan.integrations.shared.errors import ConnectorError
from kvplan.integrations.shared.plans import compile_ahead, identity
from kvplan.integrations.shared.plans import plans as plans_of
from kvplan.integrations.vllm import setup
from kvplan.integrations.vllm.layout import WorkerLayout
from kvplan.integrations.vllm.setup import EngineRoles, connector_worker
from kvplan.plan.errors import PlanSignatureError
from kvplan.registry import signing
from kvplan.registry.exchange import push
from kvplan.runtime.plans.catalog import Catalog

MODEL = "nemotron-h-8b"
ROLES = EngineRoles("e", "e.1", prefills=True, decodes=True, port=7600)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Plans like those that the doctor recommends: states in DS."""
    folder = tmp_path_factory.mktemp("plans")
    words = ["compile", MODEL, "--prefill", "tp=1", "--decode", "tp=1", "-o", str(folder)]
    assert CliRunner().invoke(main, words).exit_code == 0
    return folder


def layout(side: str) -> WorkerLayout:
    bound, digest = side_of(bind(load(), load().model(MODEL), side))
    return WorkerLayout(bound, MODEL, digest, 0, {}, (), None)


@pytest.mark.parametrize("side", ["tp=1,conv=SD", "tp=1,order=LBNHC"])
def test_an_engine_that_was_started_otherwise_is_refused_with_the_command(side: str, plans: Path) -> None:
    """The engine's default of `conv` is SD, which it changes by itself only for connectors of its own."""
    config = read_config({"plans": str(plans), "insecure": True})
    with pytest.raises(ConnectorError, match=rf"has prefill or decode side {side} of {MODEL}") as error:
        connector_worker(config, layout(side), ROLES)
    assert error.value.code == "I006"
    assert f"kvplan compile {MODEL} --prefill {side} --decode {side}" in error.value.help


def test_an_engine_says_which_weights_it_has(plans: Path) -> None:
    served = replace(ROLES, revision="9f2e1c7")
    known = identity(Catalog(plans), layout("tp=1"), served.identity, "prefill")
    assert (known.name, known.revision, known.model) == ("e", "9f2e1c7", MODEL)


def test_an_engine_says_what_its_peers_have_to_have_alike(plans: Path) -> None:
    served = replace(layout("tp=1"), settings={"rotary embedding": "rope_theta=5"})
    assert identity(Catalog(plans), served, ROLES.identity, "decode").settings == {"rotary embedding": "rope_theta=5"}


def test_an_engine_whose_plans_are_another_name_s_keeps_its_own(plans: Path) -> None:
    """By its own name, this engine makes the other engine's plans from its own file."""
    renamed = replace(layout("tp=1"), model="mine")
    known = identity(Catalog(plans), renamed, ROLES.identity, "prefill")
    assert (known.model, known.model_digest) == ("mine", renamed.model_digest)


@pytest.mark.parametrize("drafts", [True, False])
def test_where_drafts_are_made_both_sides_wait_for_the_device(
    drafts: bool, plans: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drafts are written behind the token that ends a step."""
    worker = SimpleNamespace(start=lambda: None, keys=None, endpoint=None)
    for name in ("PrefillWorker", "Nixl", "views"):
        monkeypatch.setattr(setup, name, lambda *_, **__: worker)
    monkeypatch.setattr(setup, "DecodeWorker", SimpleNamespace(beside=lambda prefill, _: prefill))
    config, mark = read_config({"plans": str(plans), "insecure": True}), list[None]().clear
    made, _ = connector_worker(config, replace(layout("tp=1"), mark=mark), replace(ROLES, drafts=drafts))
    assert [side is not None and side._mark is mark for side in (made._prefill, made._decode)] == [drafts, drafts]


def checkpoint(folder: Path, weights: bytes = b"weights") -> str:
    """The path of a checkpoint's configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(weights)
    (folder / "config.json").write_text("{}")
    return str(folder / "config.json")


def served(model: str, config: str, **more: object) -> str:
    about = SimpleNamespace(**{"model": model, "model_weights": "", "revision": None, **more})
    return setup.checkpoint_revision(about, config)


def test_weights_are_known_by_what_is_served(tmp_path: Path) -> None:
    """A commit, the files in any folder, or name and revision identify them; the configuration's path does not."""
    commit = "a1" * 20
    hub = checkpoint(tmp_path / "hub/models--org--base/snapshots" / commit)
    assert served("org/base", hub) == served(str(Path(hub).parent), hub) == commit
    base, copy = checkpoint(tmp_path / "base"), checkpoint(tmp_path / "copy")
    tuned = checkpoint(tmp_path / "tuned", b"others!")
    assert served("base", base) == served("copy", copy) != served("tuned", tuned)
    streamed = [served("/tmp/of-config", base, model_weights=f"s3://bucket/{name}") for name in ("base", "tuned")]
    named = [served("org/base", "None", revision=revision) for revision in (None, "v1", "v2")]
    assert len({*streamed, *named, served("base", base)}) == 6


def test_plans_come_from_a_url(plans: Path, tmp_path: Path) -> None:
    """Pulled before anything is looked for; what no trusted key signed stops the start."""
    public, secret = signing.make(tmp_path, "team")
    push(plans, str(tmp_path / "there"), signing.SigningKey(secret))
    given = {"plans": str(tmp_path / "here"), "plans_url": str(tmp_path / "there"), "insecure": True}
    catalog = plans_of(read_config({**given, "plans_key": str(public)}), None)
    assert [one.model for one in catalog.entries()] == [MODEL]
    chosen = {"plan_options": {"strategy": "auto"}}
    pulled, read = {**given, "plans_key": str(public)}, {"plans": str(plans)}
    for key, cache in ((pulled, None), (read, None), (dict[str, object](), tmp_path / "cache")):
        assert plans_of(read_config({**key, **chosen}), cache).options == (("strategy", "auto"),)
    other, _ = signing.make(tmp_path, "other")
    with pytest.raises(PlanSignatureError, match="not trusted"):
        plans_of(read_config({**given, "plans_key": str(other)}), None)


def test_the_plan_for_a_peer_like_this_engine_is_made_before_it_is_met(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has its digest, and the command that commits it."""
    caplog.set_level("INFO", "kvplan")
    catalog, mine = plans_of(read_config({}), tmp_path), layout("tp=1,conv=SD")
    compile_ahead(catalog, mine).join()
    plan = catalog.look(mine.model_digest, mine.side.digest, mine.side.digest)
    assert plan is not None
    command = f"kvplan compile {MODEL} --prefill {mine.side.key} --decode {mine.side.key} -o plans"
    assert f'plan not committed plan={plan.digest} folder={tmp_path / "plans"} commit="{command}"' in caplog.text


def test_two_engines_of_one_machine_take_ports_that_are_free(plans: Path) -> None:
    """Each of their workers says where it answers, and answers there again when its memory is registered again."""
    assert setup._address("127.0.0.1", layout("tp=1"), replace(ROLES, port=0)) == "tcp://127.0.0.1:*"
    again = replace(ROLES, port=0, before="tcp://127.0.0.1:40001")
    assert setup._address("127.0.0.1", layout("tp=1"), again) == "tcp://127.0.0.1:40001"
    second = replace(layout("tp=1"), worker=1)
    assert setup._address("10.0.0.1", second, replace(ROLES, port=7600)) == "tcp://10.0.0.1:7601"
