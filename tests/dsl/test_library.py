"""The shipped layouts, folders and files of one's own."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pytest
from tests.paths import ROOT

from kvplan.dsl.check import check
from kvplan.dsl.lang.nodes import Text
from kvplan.dsl.library import Library, load
from kvplan.dsl.schema.kind import NeedsRule
from kvplan.dsl.text.diagnostics import DslError, render
from kvplan.dsl.text.yaml_reader import YamlScalar

SHIPPED = sorted(Path(str(files("kvplan.layouts"))).glob("*/*.yaml"))
MODEL = """kvplan: 1
model: {name}
title: A model
dtype: bfloat16
layers: 3
-note: a comment that is kept
caches:
  attention: {{kind: {kind}, layers: all, heads: 8, dim: 128}}
"""
Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return _write


def test_shipped_files_are_clean() -> None:
    assert len(SHIPPED) >= 10
    assert check(SHIPPED) == []
    assert check(sorted((ROOT / "examples").glob("*.yaml"))) == []


def test_every_order_of_the_default_engine_has_a_storage() -> None:
    library = load()
    engine = library.engine(library.default_engine)
    for kind in (library.kind(name) for name in library.kinds):
        if kind.store == "tokens" and kind.name != "encoder-cache":  # which is never in an engine's own pages
            assert set(engine.options["order"].values) <= set(kind.storage)


def test_numbers_of_a_hybrid() -> None:
    model = load().model("nemotron-3-nano-30b")
    assert (model.layers, dict(model.values)) == (52, {"dtype": "bf16", "query_heads": 32})
    assert {name: len(cache.layers) for name, cache in model.caches.items()} == {"attention": 6, "mamba": 23}
    dtype = model.caches["mamba"].params["ssm_dtype"].tree
    assert isinstance(dtype, Text)
    assert dtype.value == "f32"


def test_split_is_added_to_tensors_with_the_axis() -> None:
    tensors = load().kind("mamba2").tensors
    assert [dict(t.split) for t in tensors.values()] == [
        {"head": "tp"},
        {"bc_group": "tp"},
        {"bc_group": "tp"},
        {"head": "tp"},
    ]


def test_unknown_names_get_the_nearest() -> None:
    library = load()
    for ask, word in ((library.model, "llama-3.1-9b"), (library.kind, "gpa"), (library.engine, "vlm")):
        with pytest.raises(DslError, match="did you mean"):
            ask(word)
    assert "gpa" not in library.kinds
    with pytest.raises(KeyError):
        library.kinds["gpa"]


def test_own_files(write: Write) -> None:
    folder = write(
        "more/kinds/mine.yaml", (ROOT / "layouts/kinds/gqa.yaml").read_text().replace("kind: gqa", "kind: mine")
    )
    path = write("tiny.yaml", MODEL.format(name="tiny", kind="mine"))
    library = load([path], [folder.parents[1]])
    assert library.model("tiny").caches["attention"].layers == (0, 1, 2)
    assert library.model("tiny").values["dtype"] == "bf16"
    assert check([path], [folder.parents[1]]) == []
    assert [d.code for d in check([path])] == ["K008"]


def test_files_checked_together_may_refer_to_each_other(write: Write) -> None:
    kind = write("mine.yaml", (ROOT / "layouts/kinds/gqa.yaml").read_text().replace("kind: gqa", "kind: mine"))
    assert check([write("tiny.yaml", MODEL.format(name="tiny", kind="mine")), kind]) == []


def test_no_file_takes_the_name_of_another(write: Write) -> None:
    path = write("llama-3.1-8b.yaml", MODEL.format(name="llama-3.1-8b", kind="gqa"))
    with pytest.raises(DslError, match="K007"):
        load([path])
    assert [d.code for d in check([path])] == ["K007"]


def test_the_same_file_may_come_twice(write: Write) -> None:
    copy = write("gqa.yaml", (ROOT / "layouts/kinds/gqa.yaml").read_text())
    assert load([copy, copy]).kind("gqa").name == "gqa"


def test_an_engine_extends_another(write: Write) -> None:
    path = write("ours.yaml", "kvplan: 1\nengine: ours\nextends: vllm\ntitle: Ours\noptions: {block: {default: 64}}\n")
    library: Library = load([path])
    ours, base = library.engine("ours"), library.engine("vllm")
    block = ours.options["block"].default
    assert block is not None
    assert (block.text, ours.title, ours.options["order"].values) == ("64", "Ours", base.options["order"].values)
    assert library.default_engine == "vllm"


def test_a_kind_extends_another(write: Write) -> None:
    storage = "{mine: 'layer { block { k[token head dim] v[head token dim] } }'}"
    text = f"kvplan: 1\nkind: ours\nextends: gqa\ntitle: Ours\nstorage: {storage}\n"
    kind, model = write("ours.yaml", text), write("tiny.yaml", MODEL.format(name="tiny", kind="ours"))
    assert check([kind, model]) == []
    ours, base = load([kind]).kind("ours"), load().kind("gqa")
    assert (ours.name, ours.title, [*ours.params]) == ("ours", "Ours", [*base.params])
    assert {*ours.storage} == {*base.storage, "mine"}


def test_a_model_extends_another(write: Write) -> None:
    text = "kvplan: 1\nmodel: ours\nextends: llama-3.1-8b\ntitle: Ours\nlayers: 4\ncaches: {attention: {heads: 2}}\n"
    path = write("ours.yaml", text)
    assert check([path]) == []
    ours, base = load([path]).model("ours"), load().model("llama-3.1-8b")
    assert (ours.layers, ours.caches["attention"].params["heads"].text) == (4, "2")
    assert ours.caches["attention"].params["dim"].text == base.caches["attention"].params["dim"].text


@pytest.mark.parametrize(("file_type", "base"), [("kind", "gqa"), ("engine", "vllm"), ("model", "llama-3.1-8b")])
def test_what_a_file_extends_is_there(write: Write, file_type: str, base: str) -> None:
    text = f"kvplan: 1\n{file_type}: ours\nextends: NAME\ntitle: Ours\n"
    assert [d.code for d in check([write("ours.yaml", text.replace("NAME", base))])] == []
    assert [d.code for d in check([write("ours.yaml", text.replace("NAME", "ours"))])] == ["K011"]
    assert [d.code for d in check([write("ours.yaml", text.replace("NAME", "nothing"))])] == ["K008"]


@pytest.mark.parametrize("file", ["beside.yaml", "models/beside.yaml"])
def test_a_file_beside_the_one_that_names_it_is_pointed_at(write: Write, file: str) -> None:
    text = "kvplan: 1\nmodel: NAME\nextends: BASE\n"
    found = write(f"mine/{file}", text.replace("NAME", "beside").replace("BASE", "llama-3.1-8b"))
    path = write(f"mine/{Path(file).with_stem('ours')}", text.replace("NAME", "ours").replace("BASE", "beside"))
    (error,) = check([path])
    assert (error.code, error.help) == ("K008", f"{found} is not read: give --layouts {found.parent}")
    assert check([path], [found.parent]) == []


def test_a_model_in_the_current_folder_is_pointed_at(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write("mine/ours.yaml", "kvplan: 1\nmodel: ours\nextends: llama-3.1-8b\n").parent)
    with pytest.raises(DslError) as caught:
        load().model("ours")
    (error,) = caught.value.diagnostics
    assert (error.code, error.help) == ("K008", "ours.yaml is not read: give its path, or --layouts .")
    assert load((), [Path()]).model("ours").name == load([Path("ours.yaml")]).model("ours").name == "ours"


def test_a_model_in_a_folder_below_is_pointed_at(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    found = write("work/mine/qwen3-next-ours.yaml", "kvplan: 1\nmodel: qwen3-next-ours\nextends: qwen3-next-80b\n")
    monkeypatch.chdir(found.parent.parent)
    with pytest.raises(DslError) as caught:
        load().model("qwen3-next-ours")
    (error,) = caught.value.diagnostics
    assert error.help == "mine/qwen3-next-ours.yaml is not read: give its path, or --layouts mine"


def test_a_kind_beside_the_models_is_found_from_their_folder(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write("mine/kinds/ours.yaml", "kvplan: 1\nkind: ours\nextends: gqa\n")
    text = "kvplan: 1\nmodel: new\nextends: llama-3.1-8b\ncaches: {attention: {kind: ours}}\n"
    monkeypatch.chdir(write("mine/models/new.yaml", text).parent)
    (error,) = check([Path("new.yaml")])
    assert (error.code, error.help) == (
        "K008",
        f"{Path('../kinds/ours.yaml').resolve()} is not read: give --layouts {Path('..').resolve()}",
    )


def test_a_name_that_no_file_can_have_is_unknown(write: Write) -> None:
    name = "a" * 300
    path, kind = write("ours.yaml", f"kvplan: 1\nmodel: ours\nextends: {name}\n"), MODEL.format(name="tiny", kind=name)
    assert [d.code for d in check([path])] == ["K008"]
    assert [d.code for d in check([write("tiny.yaml", kind)])] == ["K008"]
    plans = f"plans: [{{models: [{name}, x/{name}.yaml], prefill: tp=1, decode: tp=1}}]"
    assert {d.code for d in check([write("dep.yaml", f"kvplan: 1\ndeployment: dep\n{plans}\n")])} == {"K008", "Y012"}


def test_nobody_is_told_to_extend_itself(write: Write) -> None:
    (error,) = check([write("ours.yaml", "kvplan: 1\nmodel: ours\nextends: ours2\n")])
    assert (error.code, "ours" in error.help.split("'")) == ("K008", False)


def test_an_engine_does_not_inherit_being_the_default(write: Write) -> None:
    base = write("base.yaml", (ROOT / "layouts/engines/vllm.yaml").read_text().replace("engine: vllm", "engine: base"))
    with pytest.raises(DslError, match="base and vllm marked"):
        _ = load([base]).default_engine
    name = load().default_engine
    path = write("ours.yaml", f"kvplan: 1\nengine: ours\nextends: {name}\ntitle: Ours\n")
    assert load([path]).default_engine == name
    assert check([path]) == []


def test_a_model_is_judged_as_far_as_no_side_is_needed(write: Write) -> None:
    text = MODEL.format(name="tiny", kind="gqa").replace("dim: 128", "dim: 128, dim_v: ")
    for value, codes in (("64", []), ("dim", ["E005"]), ("query_heads", []), ("bytes(dtype) - 2", ["B004"])):
        found = check([write("tiny.yaml", text.replace("dim_v: ", f"dim_v: {value}") + "query_heads: 4\n")])
        assert [d.code for d in found] == codes, value


WINDOWED = """kvplan: 1
kind: windowed
title: A kind
params: {heads: {}, window: {default: 0}}
store: tokens
length: encoder
needs: {window: window, retain: draft_tokens, chunk: 0 * heads, sink: 4}
tensors:
  k: {axes: {head: heads, token: ~}, dtype: bf16}
storage:
  one: layer { block { k[head token] } }
"""
CACHES = """kvplan: 1
model: tiny
title: A model
dtype: bf16
layers: 4
caches:
  inherits: {kind: windowed, layers: [0], heads: 8, window: 128}
  replaces: {kind: windowed, layers: [1], heads: 8, needs: {chunk: window + draft_tokens}}
  all:      {kind: windowed, layers: [2], heads: 8, needs: all}
"""


def limits(needs: NeedsRule | None) -> dict[str, str] | None:
    return {name: expr.text for name, expr in needs.limits} if needs else None


def test_needs_and_length(write: Write) -> None:
    library = load([write("windowed.yaml", WINDOWED), write("tiny.yaml", CACHES)])
    kind = library.kind("windowed")
    assert limits(kind.needs) == {"window": "window", "retain": "draft_tokens", "chunk": "0 * heads", "sink": "4"}
    gqa = library.kind("gqa")
    assert (kind.length, gqa.length, gqa.needs and gqa.needs.window is not None) == ("encoder", "context", True)
    caches = library.model("tiny").caches
    assert limits(caches["inherits"].needs) is None
    assert limits(caches["replaces"].needs) == {"chunk": "window + draft_tokens"}
    assert limits(caches["all"].needs) == {}


def test_all_tokens_may_be_said_or_not(write: Write) -> None:
    given = WINDOWED.replace("needs: {window: window, retain: draft_tokens, chunk: 0 * heads, sink: 4}", "needs: all")
    assert load([write("windowed.yaml", given)]).kind("windowed").needs is None


def test_limits_of_a_kind_are_judged_with_the_numbers_of_a_model(write: Write) -> None:
    kind = write("windowed.yaml", WINDOWED)
    for text, codes in (("window: 0", []), ("window: 4 - 8", ["B005"]), ("window: dtype", ["T001"])):
        model = write("tiny.yaml", CACHES.replace("window: 128", text))
        found = check([kind, model])
        assert [d.code for d in found] == codes, text
        assert all((d.span.path, d.span.line) == (str(model), 7) and d.notes == () for d in found)


POLICIES = """kvplan: 1
engine: ours
extends: vllm
title: Ours
options:
  place: {type: name, default: around, values: [consecutive, round_robin], aliases: {around: round_robin}}
  form:  {type: name, default: by_tokens, values: [by_page, by_cache, by_tokens]}
  cut:   {type: name, default: even, values: [even]}
copies: "{place}"
groups: {form: "{form}", assign: blocked}
mesh: {workers: [pp, pcp, tp], layers: "{cut}", tokens: [pcp, dcp]}
derive: {widest: "max(block, window + chunk, token_bytes)"}
stride: {state: page + block_bytes, gqa: token_bytes * window, default: block_bytes}
"""


def test_policies_by_option(write: Write) -> None:
    path = write("ours.yaml", POLICIES)
    assert check([path]) == []
    ours = load([path]).engine("ours")
    assert (ours.copies, ours.groups.form, ours.groups.assign, ours.mesh.layers) == (
        "{place}",
        "{form}",
        "blocked",
        "{cut}",
    )
    strides = {key: expr.text for key, expr in ours.stride.items()}
    assert strides | {"state": "page + block_bytes", "gqa": "token_bytes * window", "default": "block_bytes"} == strides


def test_tokens_are_shared_out_over_axes_of_the_mesh(write: Write) -> None:
    for text, axes in (("[pcp, dcp]", ("pcp", "dcp")), ("tp", ("tp",)), ("[tp]", ("tp",)), ("[]", ())):
        path = write("ours.yaml", POLICIES.replace("[pcp, dcp]", text))
        assert load([path]).engine("ours").mesh.tokens == axes


def test_two_defaults_are_refused(write: Write) -> None:
    path = write("ours.yaml", "kvplan: 1\nengine: ours\nextends: vllm\ntitle: Ours\ndefault: true\n")
    with pytest.raises(DslError, match="K014"):
        _ = load([path]).default_engine


def test_errors_of_a_kind_do_not_hide_those_of_its_model(write: Write) -> None:
    kind = write("mine.yaml", (ROOT / "layouts/kinds/gqa.yaml").read_text().replace("kind: gqa", "kind: mine\nstor: 1"))
    model = write("tiny.yaml", MODEL.format(name="tiny", kind="mine") + "extra: 1\n")
    assert {(Path(d.span.path).name, d.code) for d in check([kind, model])} == {
        ("mine.yaml", "K001"),
        ("tiny.yaml", "K001"),
    }


def test_deployment() -> None:
    library = load()
    deployment = library.deployment(ROOT / "examples/demo.yaml")
    assert deployment.name == "demo"
    assert all(plan.models and plan.prefill and plan.decode for plan in deployment.plans)
    with pytest.raises(DslError, match="K005"):
        library.deployment(ROOT / "layouts/models/llama-3.yaml")


def test_a_file_that_changes_is_read_again(write: Write) -> None:
    path = write("tiny.yaml", MODEL.format(name="tiny", kind="gqa"))
    assert load([path]).model("tiny").layers == 3
    path.write_text(path.read_text().replace("layers: 3", "layers: 44"))
    assert load([path]).model("tiny").layers == 44


def test_files_in_the_docs_are_clean(write: Write) -> None:
    blocks = re.findall(r"```yaml\n(kvplan: 1\n\w+: (\S+)\n.*?)```", (ROOT / "docs/dsl.md").read_text(), re.DOTALL)
    assert len(blocks) >= 4
    assert render(check([write(f"{name}.yaml", text) for text, name in blocks])) == ""


def test_a_file_that_is_put_back_is_read_again(tmp_path: Path, write: Write) -> None:
    """It has the time and the size of before, and what was parsed meanwhile is not it."""
    path = write("models/mine.yaml", MODEL.format(name="mine", kind="gqa"))
    kept = path.rename(tmp_path / "kept")
    times = kept.stat().st_atime_ns, kept.stat().st_mtime_ns
    shutil.copy2(kept, path)
    before = load((), [tmp_path / "models"])
    path.write_text(path.read_text().replace("heads: 8", "heads: 4"))
    os.utime(path, ns=times)
    assert heads(before) == "4", "files are parsed when they are asked for"
    path.unlink()
    kept.rename(path)
    assert heads(load((), [tmp_path / "models"])) == "8"


def test_nothing_is_parsed_again_where_no_file_has_changed(tmp_path: Path, write: Write) -> None:
    path = write("models/mine.yaml", MODEL.format(name="mine", kind="gqa"))
    first, again = (load((), [path.parent]) for _ in range(2))
    assert first is again
    assert load((), [tmp_path / "none"]) is not first


def test_kinds_and_engines_are_parsed_again_only_where_one_of_them_is_another(write: Write) -> None:
    path = write("models/mine.yaml", MODEL.format(name="mine", kind="gqa"))
    shipped, with_model = load(), load((), [path.parent])
    assert with_model.kind("gqa") is shipped.kind("gqa")
    assert with_model.engine("vllm") is shipped.engine("vllm")
    own = write("kinds/mine.yaml", "kvplan: 1\nkind: mine\ntitle: Mine\nextends: gqa\n")
    with_kind = load((), [own.parent])
    assert with_kind.engine("vllm") is not shipped.engine("vllm")
    assert [with_kind.kind(name).title for name in ("mine", "gqa")] == ["Mine", shipped.kind("gqa").title]


def heads(library: Library) -> str:
    return str(library.model("mine").caches["attention"].params["heads"].text)


def test_names_of_models_are_plain_texts() -> None:
    """Engines tell each other their models by msgspec, which sends no other texts."""
    library = load()
    assert {type(name) for name in library.models} == {str}
    named = [library.models[YamlScalar(name)].name for name in library.models]
    assert {type(name) for name in named} == {str}
