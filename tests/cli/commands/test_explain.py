"""`kvplan explain` shows where data lands: as text, as data, for the worker that was asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kvplan.cli.codes import words
from kvplan.cli.commands.explain_word import explain_word, names_in_files
from kvplan.cli.main import main
from kvplan.compiler.explain.describe_model import describe_model
from kvplan.dsl.json_schema import FILES
from kvplan.dsl.library import load
from kvplan.dsl.schema.forms import forms_in
from kvplan.review.rules import MEANINGS, RULES, VERDICTS
from kvplan.runtime.ops.metrics import Counters
from kvplan.runtime.ops.prometheus import SORTS, PrometheusCollector

PAIR = ["llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2"]


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["explain", *words])


def answer(*words: str) -> Any:
    return json.loads(run(*words, "--format", "json").stdout)


def test_the_first_worker_is_drawn_unless_another_is_asked_for() -> None:
    first, second = run(*PAIR).stdout, run(*PAIR, "--worker", "1").stdout
    assert "WHAT LANDS WHERE, DECODE WORKER 0" in first
    assert "A  prefill 0  head 0-1" in first
    assert "WHAT LANDS WHERE, DECODE WORKER 1" in second
    assert "A  prefill 2  head 4-5" in second


def test_pieces_are_data() -> None:
    said = answer(*PAIR, "--worker", "1")
    assert said["worker"] == 1
    assert [(piece["letter"], piece["prefill_worker"], piece["holds"]) for piece in said["landing"]] == [
        ("A", 2, {"head": [4, 6]}),
        ("B", 3, {"head": [6, 8]}),
    ]
    (_, last) = said["landing"]
    assert last["decode"] == {
        "plane": "attention.0",
        "number": 0,
        "page": 32768,
        "offset": 16384,
        "bytes": 16384,
        "turns": [],
    }
    assert last["repeats"] == [{"axis": "layer", "count": 32, "prefill": [1, 0], "decode": [1, 0]}]
    assert sum(piece["spans"] for piece in said["landing"]) == said["moves"][0]["spans"]


def test_a_plan_on_disk_shows_the_same(tmp_path: Path) -> None:
    CliRunner().invoke(main, ["compile", *PAIR, "-o", str(tmp_path)])
    disk = answer(str(tmp_path / "llama_3_1_8b/p_tp4__d_tp2.py"), "--worker", "1")
    assert disk["landing_drawing"] == answer(*PAIR, "--worker", "1")["landing_drawing"]


@pytest.mark.parametrize(
    "words",
    [[*PAIR, "--worker", "2"], [*PAIR, "--worker", "-1"], [*PAIR[:3], "--worker", "0"], ["C110", "--worker", "0"]],
)
def test_a_worker_that_is_not_there_is_bad_input(words: list[str]) -> None:
    said = run(*words, "--format", "json")
    assert (said.exit_code, json.loads(said.stdout)["error"]["code"]) == (2, "S024")


MIXED = """kvplan: 1
model: mixed
title: A model
dtype: bf16
query_heads: 8
layers: 4
caches:
  draft: {kind: gqa, layers: [3], heads: 8, dim: 128, window: 64, optional: true}
  main: {kind: mla, layers: [0, 1, 2], latent: 512, rope: 64}
"""


ROWS = """kvplan: 1
kind: rows
title: One row for several tokens
params: {size: {}, half: {default: size // 2}, record: {type: name, default: kv_dtype}}
store: tokens
needs: {window: size, sink: draft_tokens}
length: other
tensors:
  r: {axes: {token: ~/4, dim: half}, dtype: record}
  s: {axes: {token: ~/4, dim: size}, dtype: f32, when: record == 'fp8'}
storage:
  one: layer { block { token { r[dim] s[dim] } } }
"""
BARE = ROWS.replace("kind: rows", "kind: bare").replace("params: {size: {}", "params: {size: {default: 64}")
OF_ROWS = """kvplan: 1
model: of_rows
title: A model
dtype: bf16
layers: 3
caches:
  a: {kind: rows, layers: [0], size: 64, optional: true}
  b: {kind: bare, layers: [1]}
  c: {kind: rows, layers: [2], size: 64, needs: all}
"""


def of_rows(folder: Path) -> str:
    for name, text in {"rows": ROWS, "bare": BARE, "of_rows": OF_ROWS}.items():
        (folder / f"{name}.yaml").write_text(text)
    return str(folder / "of_rows.yaml")


def test_a_model_alone_says_what_is_stored_by_default_first(tmp_path: Path) -> None:
    lines = run(of_rows(tmp_path), "--layouts", str(tmp_path)).stdout.splitlines()
    assert lines[lines.index("a: rows, One row for several tokens, may be missing on one side") :][:10] == [
        "a: rows, One row for several tokens, may be missing on one side",
        "  1 layer: 0",
        "  needs: window 64",
        "  length: other",
        "  size 64",
        "  by default half 32, record bf16",
        "  stored, on vllm by default:",
        "    r[row of 4 tokens, dim 32] bf16",
        "  stored otherwise:",
        "    s[row of 4 tokens, dim size] f32 when record == 'fp8'",
    ]
    assert lines[lines.index("b: bare, One row for several tokens") :][4:6] == [
        "  by default size 64, half 32, record bf16",
        "  stored, on vllm by default:",
    ]
    assert lines[lines.index("c: rows, One row for several tokens") + 2] == "  needs: all"


@pytest.mark.parametrize(
    ("layers", "bare", "line"),
    [
        ("all", [], ""),
        ("layer % 4 != 3", [3, 7], "no cache: layers 3, 7"),
        ("[0, 1, 2, 3, 4, 5, 7]", [6], "no cache: layers 6"),
    ],
)
def test_layers_without_a_cache_are_said(layers: str, bare: list[int], line: str, tmp_path: Path) -> None:
    """One that was forgotten is a warning, no error: layers of other kinds have none."""
    path = tmp_path / "mine.yaml"
    head = "kvplan: 1\nmodel: mine\ntitle: Mine\ndtype: bf16\nquery_heads: 8\nlayers: 8\ncaches:\n"
    path.write_text(f"{head}  a: {{kind: gqa, layers: {layers}, heads: 8, dim: 64}}\n")
    assert json.loads(run(str(path), "--format", "json").stdout)["bare"] == bare
    said = run(str(path)).stdout
    assert (f"  {line}" in said) if line else "no cache" not in said


def test_a_model_alone_as_data(tmp_path: Path) -> None:
    a, b, c = answer(of_rows(tmp_path), "--layouts", str(tmp_path))["caches"]
    assert (a["needs"], b["needs"], c["needs"]) == ({"window": 64}, {"window": 64}, "all")
    assert (a["params"], a["defaults"]) == ({"size": "64"}, {"half": 32, "record": "bf16"})
    assert (b["params"], b["defaults"]["size"], b["length"]) == ({}, 64, "other")
    assert (set(a["default"]), set(a["stores"])) == ({"r"}, {"r", "s"})


LATENTS = """kvplan: 1
model: latents
title: Latents with an index
checkpoint: {architecture: NewForCausalLM, model_type: new}
dtype: bf16
query_heads: 4
layers: 2
caches:
  attention: {kind: mla, layers: all, latent: 128, rope: 32, nope: 64}
  indexer: {kind: indexer, layers: all, dim: 128}
"""


def test_a_model_alone_says_what_the_engine_stores_instead(tmp_path: Path) -> None:
    (tmp_path / "latents.yaml").write_text(LATENTS)
    said = run(str(tmp_path / "latents.yaml")).stdout
    assert "layers: 2 (all store attention)" in said
    assert "note: vllm stores attention as gqa (heads 4, dim 96), not mla, because latents == 'heads' for" in said
    assert "note: vllm does not store indexer, because latents == 'heads'" in said
    assert "  stored, on vllm by default:\n    k[head 4, token, dim 96] bf16\n" in said
    assert "  nothing stored, on vllm by default:\n  stored otherwise:\n    k[token, dim dim] fp8\n" in said


def test_a_model_in_a_folder_that_is_not_read_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "cirrus.yaml").write_text(LATENTS.replace("model: latents", "model: cirrus"))
    monkeypatch.chdir(tmp_path)
    assert "mine/cirrus.yaml is not read: give its path, or --layouts mine" in run("cirrus").output


def test_a_model_alone_that_the_engine_refuses_says_so(tmp_path: Path) -> None:
    (tmp_path / "latents.yaml").write_text(LATENTS.replace(", nope: 64", ""))
    said = run(str(tmp_path / "latents.yaml"))
    assert said.exit_code == 0
    assert "note: refused: latents on vllm: it keeps the keys and values of all heads" in said.stdout
    assert "add nope" in said.stdout


def test_what_needs_a_side_is_kept_as_written(tmp_path: Path) -> None:
    of_rows(tmp_path)
    found = load([tmp_path / "of_rows.yaml"], [tmp_path])
    said = describe_model(found.model("of_rows"), {name: found.kind(name) for name in ("rows", "bare")}, {})
    cache = said["caches"][0]
    assert cache["default"] == {"r": "[row of 4 tokens, dim 32] record"}
    assert (cache["defaults"], cache["needs"]) == (
        {"half": 32, "record": "kv_dtype"},
        {"window": 64, "sink": "draft_tokens"},
    )


def mixed(folder: Path) -> str:
    path = folder / "mixed.yaml"
    path.write_text(MIXED)
    return str(path)


def test_a_worker_holds_caches_without_split_axes_too(tmp_path: Path) -> None:
    lines = run(mixed(tmp_path), "--decode", "tp=2").stdout.splitlines()
    assert [line.split()[:7] for line in lines if "all of it" in line] == [
        ["0", "draft", "head", "0-3;", "main", "all", "of"],
        ["1", "draft", "head", "4-7;", "main", "all", "of"],
    ]
    workers = answer(mixed(tmp_path), "--decode", "tp=2")["workers"]
    assert [worker["holds"] for worker in workers] == [
        {"draft": {"head": [0, 4]}, "main": {}},
        {"draft": {"head": [4, 8]}, "main": {}},
    ]


@pytest.mark.parametrize("name", sorted(load().engines))
def test_an_engine_shows_its_options_and_what_it_derives(name: str) -> None:
    engine, said, text = load().engine(name), answer(name), run(name).stdout
    assert [*said["options"]] == [*engine.options]
    assert [*said["derived"]] == [*engine.derive]
    for option in engine.options.values():
        shown = said["options"][option.name]
        assert (shown["values"], shown["aliases"], shown["doc"]) == ([*option.values], dict(option.aliases), option.doc)
        assert f"  {option.name}, " in text
    flat = " ".join(text.split())
    assert all(" ".join(option.doc.split()) in flat for option in engine.options.values())
    assert all(f"\n  {derived}" in text for derived in engine.derive)
    assert all(
        said["derived"][derived]["doc-ref"] == docs.doc_ref for derived, docs in engine.docs.items() if docs.doc_ref
    )


def test_cases_of_a_derived_value_are_data_and_text() -> None:
    derived = answer("vllm")["derived"]["spec_block_size"]
    assert (derived["unit"], derived["cases"][0]) == ("tokens", {"when": "ring", "is": "ring"})
    assert derived["cases"][-1] == {"when": "", "is": "attention_block_size"}
    assert derived["doc-ref"].startswith("vllm/")
    lines = [line.strip() for line in run("vllm").stdout.splitlines()]
    at = lines.index("spec_block_size, tokens")
    assert {"= ring   where ring", "= attention_block_size   otherwise"} <= {*lines[at : at + 8]}


@pytest.mark.parametrize("name", sorted(load().kinds))
def test_a_kind_shows_its_parameters_and_every_order(name: str) -> None:
    kind, said, text = load().kind(name), answer(name), run(name).stdout
    assert [*said["parameters"]] == [*kind.params]
    assert [*said["storage"]] == [*kind.storage]
    assert [*said["records"]] == [variant.name for variant in kind.variants]
    for variant in kind.variants:
        assert [*said["records"][variant.name]["tensors"]] == [*variant.tensors]
        assert f"stored as {variant.name}, where" in text
    assert all(f"  {order}" in text for order in kind.storage)


def test_a_kind_is_found_by_other_names() -> None:
    assert "= did you mean 'gqa'? mha is gqa with as many KV heads as query heads" in run("mha").stderr
    assert "= did you mean 'gqa'?" in run("GQA").stderr
    assert answer("gqa")["other_names"]["mqa"] == "gqa with one KV head"
    assert "= did you mean 'gqa'? sliding_window is gqa with a `window`" in run("sliding_window").stderr
    assert "  mqa                gqa with one KV head" in run("gqa").stdout


def test_orders_are_written_out() -> None:
    said = answer("mla")
    assert said["storage"]["BLNHC"] == "block { layer { token { latent[dim] rope[turn] } align(page_align) } }"
    assert said["storage"]["LHBNC"] == said["storage"]["LBHNC"]
    assert said["legend"]["LBHNC"] == "outermost first"
    assert answer("gdn")["storage"]["DS-apart"] == {
        "conv": "layer { block { q[key_head key_dim tap] k[key_head key_dim tap] v[head value_dim tap] } }",
        "ssm": "layer { block { ssm[head value_dim key_dim] } }",
    }


def test_an_engine_of_ones_own_is_given_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "ours.yaml"
    path.write_text("kvplan: 1\nengine: ours\nextends: vllm\ntitle: Ours\nderive: {tokens: block}\n")
    assert answer(str(path))["derived"]["tokens"] == {
        "doc": "",
        "unit": "",
        "fixed": "",
        "is": "block",
        "doc-ref": load().engine("vllm").doc_ref,
    }
    assert run(str(path)).stdout.startswith("ours: Ours (>=0.29)\n")


def test_a_path_is_what_its_file_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in a file that has a kind's name, and a file of no layout that is named without its folder."""
    monkeypatch.chdir(tmp_path)
    Path("mla.yaml").write_text("kvplan: 1\nmodel: mla\nextends: llama-3.1-8b\n")
    Path("config.json").write_text("{}")
    assert answer("mla.yaml")["model"] == "mla"
    assert "error[Y012]: 'config.json' is no layout file" in run("config.json").stderr


@pytest.mark.parametrize(
    "words", [["vllm", "--decode", "tp=2"], ["gqa", "--prefill", "tp=1"], ["vllm", "--elect", "one"]]
)
def test_an_engine_or_a_kind_has_no_sides(words: list[str]) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert "is no model: leave out" in done.output


def test_what_is_staged_is_shown_beside_what_goes_straight() -> None:
    said = answer("llama-3.1-8b", "--prefill", "tp=4", "--decode", "tp=2,order=nhd", "--strategy", "auto")
    (move,) = said["moves"]
    (way,) = move["staged"]
    assert (way["strategy"], way["descriptors"] < move["descriptors"]) == ("unpack", True)


@pytest.mark.parametrize(
    ("decode", "unit"), [("tp=2", "block"), ("tp=2,block=32", "run of tokens"), ("tp=2,order=nhd,block=32", "token")]
)
def test_spans_are_counted_for_their_unit(decode: str, unit: str) -> None:
    """A token with gaps around it is a span of its own, however long the run is."""
    words = ("llama-3.1-8b", "--prefill", "tp=4", "--decode", decode)
    (move,) = answer(*words)["moves"]
    assert (move["unit"], f"{move['spans']:,} a {unit} " in run(*words).stdout) == (unit, True)


@pytest.mark.parametrize("words", [["--strategy", "auto"], ["--decode", "tp=2", "--elect", "spread"]])
def test_options_that_choose_nothing_are_refused(words: list[str]) -> None:
    done = CliRunner().invoke(main, ["explain", "llama-3.1-8b", *words])
    assert (done.exit_code, "nothing is compiled of llama-3.1-8b" in done.output) == (2, True)


def test_a_word_that_is_nothing_is_shown_where_metrics_and_words_are() -> None:
    said = run("xylophone")
    assert said.exit_code == 2
    assert "alerts and events are in docs/operations.md, words in docs/glossary.md" in said.output


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("KvplanHolds", "KvplanHoldsFull"),
        ("held_requests", "vllm:kvplan_held_requests"),
        ("KvplanVllmFreeEarly", "KvplanVllmFreedEarly"),
        ("peer_lost", "peer lost"),
        ("early", "blocks freed early"),
    ],
)
def test_a_word_that_is_nothing_is_answered_with_what_production_shows(word: str, near: str) -> None:
    told = run(word).output
    assert "error[K008]" in told
    assert f"'{near}'" in told.partition("did you mean ")[2]


@pytest.mark.parametrize("word", ["quarantine", "Lease", "run of an engine", "meet"])
def test_a_word_of_the_glossary(word: str) -> None:
    said = run(word)
    assert (said.exit_code, said.output.partition(": ")[0]) == (0, word.lower())
    assert len(said.output.splitlines()) == 1


LIBRARY = load()
OTHERWISE = {*words(), *LIBRARY.models, *LIBRARY.engines, *LIBRARY.kinds, *RULES, *MEANINGS, *VERDICTS}
MEANING = re.compile(r"(?:^|[:;] |Also )(?:a parameter of|an axis of|an option of|a key of) ", re.MULTILINE)


def test_a_name_in_layout_files_is_not_hidden_by_another_meaning() -> None:
    several = names_in_files(LIBRARY) & OTHERWISE
    assert several
    assert [word for word in sorted(several) if not MEANING.search(run(word).output)] == []


def test_every_name_in_layout_files_is_explained() -> None:
    named, every = names_in_files(LIBRARY), {form.what: form.keys for form in forms_in(*FILES.values())}
    assert {"no_cache", "a cache", "mesh"} <= every.keys()
    assert {key.name for keys in every.values() for key in keys} <= named
    assert [word for word in named if not explain_word(LIBRARY, word)] == []


@pytest.mark.parametrize(
    ("axis", "said"), [("tap", "conv - 1 (taps of the"), ("head_dim", "head_dim (channels of"), ("state", "state (")]
)
def test_an_axis_of_a_plan_is_explained_by_the_kinds_that_have_it(axis: str, said: str) -> None:
    told = run(axis)
    assert (told.exit_code, f"mamba2: {said}" in told.stdout) == (0, True), told.output


def test_a_folder_without_plans_hides_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fleet").mkdir()
    (tmp_path / "fleet" / "notes.py").write_text("# Emitted by kvplan from nothing")
    monkeypatch.chdir(tmp_path)
    assert run("fleet").output.startswith("fleet: the running engines")


def test_a_key_is_explained_with_the_keys_in_it() -> None:
    said = run("no_cache").output
    assert "no_cache: a key of a model and a variant" in said
    assert "mlp: layers that keep nothing" in said


def test_allocations_are_named_after_their_tensors() -> None:
    """A number would read as that of a group of layers."""
    said = run("llama-3.1-8b", "--prefill", "tp=1", "--decode", "engine=sglang,tp=1").output
    assert "attention.k on worker 0" in said
    assert "registered by layer: attention.0.0, attention.1.0 … attention.31.0" in said
    assert "1 x 1 token " in said
    assert "every token is a run" in said


def test_a_word_has_no_sides() -> None:
    said = run("lease", "--prefill", "tp=1")
    assert (said.exit_code, "lease is a word" in said.output) == (2, True)


def every_metric() -> list[str]:
    """The names of all samples of a worker's counters, as a Prometheus server has them."""
    families = PrometheusCollector(Counters()).collect()
    return sorted({sample.name for family in families for sample in family.samples} | {"kvplan_peers"})


@pytest.mark.parametrize("name", every_metric())
def test_every_metric_is_explained_by_the_name_that_a_server_has(name: str) -> None:
    said = answer(name)
    assert name.startswith(said["code"])
    assert said["title"] in {metric.help for metrics in SORTS.values() for metric in metrics}


def test_a_metric_that_is_none_is_told_with_the_nearest() -> None:
    said = run("kvplan_hold")
    assert said.exit_code == 2
    assert "error[S022]: there is no metric 'kvplan_hold'" in said.stderr
    assert "did you mean 'kvplan_holds'?" in said.stderr


def seen(*words: str) -> list[str]:
    """The first cell of each row that is shown."""
    return [row["seen"] for row in answer(*words)["seen"]]


@pytest.mark.parametrize("name", ["vllm:kvplan_num_expired_reqs_total", "vllm:kvplan_num_expired_reqs"])
def test_a_metric_of_an_engine_is_explained(name: str) -> None:
    assert "the lease ended before all decode workers confirmed" in answer(name)["title"]
    assert [row[:39] for row in seen(name)] == ["`blocks freed early` with `why=expired`"] * 2


@pytest.mark.parametrize(
    ("line", "row"),
    [
        ("hold refused", "`hold refused`"),
        (
            "WARNING [holds.py:75] hold refused request=cmpl-7 error='of /x/y'",
            "`hold refused`",
        ),
        ("no keys server=tcp://0.0.0.0:5600", "`no keys`"),
        ("fleet not heard error=timeout", "R070; `fleet not told`, `fleet not heard`"),
    ],
)
def test_a_line_of_the_log_is_explained(line: str, row: str) -> None:
    (first,) = seen(line)
    assert first.startswith(row)
    assert "  do    " in run(line).stdout


def test_a_line_of_the_log_has_only_the_rows_whose_words_it_has() -> None:
    for why in ("withdrawn", "expired"):
        assert ["why=" + why in row for row in seen(f"blocks freed early request=a why={why}")] == [True] * 2
    late = 'load failed request=b error="R046: hold 0 of request r has ended (expired): have it"'
    assert [row[:26] for row in seen(late)] == ["R046, `has ended (expired)", "`vllm:kvplan_num_failed_lo"]


@pytest.mark.parametrize("words", ["blocks stay occupied on prefill", "stay occupied on prefill", "on prefill"])
def test_a_row_is_found_by_words_of_what_is_seen(words: str) -> None:
    assert seen(words) == ["blocks stay occupied on prefill; `vllm:kvplan_held_requests` does not fall"]


def test_words_that_prefill_s_row_and_decode_s_have_find_both() -> None:
    assert len(seen("blocks stay occupied")) == 4
    (row,) = seen("KvplanVllmQuarantine")
    assert row.startswith("blocks stay occupied on decode")


@pytest.mark.parametrize(
    "words", ["why=expired", "freed early with `why=expired`".replace("`", ""), "KvplanFreedEarly"]
)
def test_what_expired_has_not_the_row_of_what_was_withdrawn(words: str) -> None:
    assert ["why=expired" in row for row in seen(words)] == [True] * 2


def test_words_that_several_rows_have_find_each() -> None:
    assert [row[:7] for row in seen("freed early")] == ["`blocks"] * 2 + ["R048 (R"] * 2 + ["`item n"]


def test_an_error_of_a_later_hold_has_its_own_row() -> None:
    late = 'load failed request=a error="R046: request r was read under hold 3, and is now hold 5: read again"'
    assert [row[:26] for row in seen(late)] == ["R046, `other blocks`, `is ", "`vllm:kvplan_num_failed_lo"]


def test_words_of_one_event_do_not_find_the_row_of_another() -> None:
    (row,) = seen("item freed early request=x why=expired")
    assert "`item freed early`" in row
    assert ["`why=expired`" in row for row in seen("request a: blocks freed early (expired)")] == [True] * 2


def test_a_row_with_a_phrase_needs_it_if_another_row_of_the_code_needs_none() -> None:
    lost = 'load failed request=r error="R044: request r: the connection to tcp://10.0.0.1:7600 is lost: connect again"'
    assert [row[:16] for row in seen(lost)] == ["R044, `is lost`", "`vllm:kvplan_num"]
    assert len(seen("R044")) == 4


FINISHED = (
    'load failed error="R046: request r: prefill worker 0 refuses it: hold 3 of request r has ended (finished): again"'
)


@pytest.mark.parametrize(
    ("line", "remedies"),
    [
        (FINISHED, ["compute the prompt again", "correct the router"]),
        (
            'load failed error="R048: hold 3 of request r has ended (withdrawn): ask another engine"',
            ["look up", "nothing"],
        ),
        ('hold refused request=a error="R049: 4096 requests are held, or not"', ["make `lease_s` *shorter*", "Limits"]),
        ("parameters refused request=a why=\"host 'h' is none of peers\"", ["`peers`"]),
        ("parameters refused request=a why='another request has what they name'", ["nothing"]),
        ("vllm:kvplan_quarantined_loads", ["end the processes"]),
        ("is lost", ["see which"]),
        ("prefill worker 0 has not confirmed that it holds all of it", ["more time"]),
        ("peer dropped reader=d/0 reason='was silent for three leases'", ["killed"]),
        ("the prefill engine withdrew the request", ["look up", "nothing"]),
        ("was silent for three leases", ["killed"]),
    ],
)
def test_a_line_has_the_remedies_of_its_causes(line: str, remedies: list[str]) -> None:
    told = [sign["do"] for sign in answer(line)["seen"]]
    assert [remedy for remedy in remedies if not any(remedy in one for one in told)] == []


def test_blocks_that_are_kept_for_a_next_turn_end_no_process() -> None:
    told = [sign["do"] for sign in answer("vllm:kvplan_held_requests")["seen"]]
    assert [one for one in told if "end the processes" in one] == []


def test_words_of_a_line_need_no_quotes() -> None:
    assert seen("blocks", "freed", "early", "request=a", "why=expired") == seen("blocks freed early why=expired")


def test_a_metric_may_have_labels_and_an_alert_small_letters() -> None:
    assert answer('kvplan_ended_holds_total{why="withdrawn"}') == answer("kvplan_ended_holds_total")
    assert answer("kvplanvllmfreedearly") == answer("KvplanVllmFreedEarly")


def test_a_line_of_the_log_has_the_rows_of_its_code() -> None:
    event, code = sorted(seen("load failed request=cmpl-1 error=R043: not done in time"), reverse=True)
    assert (event[:6], code[:4]) == ("`vllm:", "R043")
    assert seen("r042") == seen("R042")


def test_an_alert_is_explained_by_the_rows_of_its_metrics() -> None:
    assert answer("KvplanFreedEarly")["text"].startswith("rate(kvplan_ended_holds_total")
    assert ["R046" in row for row in seen("KvplanNotHeld")] == [True] * 10


def test_a_code_has_the_rows_of_what_is_seen() -> None:
    assert "\n  seen  R042;" in run("R042").stdout
    assert "seen" not in answer("K001")


@pytest.mark.parametrize("name", ["LeaseError", "BadRequestError", "LimitedError"])
def test_an_error_is_explained_by_the_name_of_its_class(name: str) -> None:
    assert answer(name)["title"] == name


@pytest.mark.parametrize(("key", "default"), [("lease_s", "120.0"), ("hold_s", "10.0"), ("peers", "none")])
def test_a_key_of_a_connector_is_explained_with_its_default(key: str, default: str) -> None:
    assert "a key of a connector" in answer(key)["title"]
    assert "docs/vllm.md#configuration" in answer(key)["text"]
    assert f"\n  {key}, by default {default}\n" in answer(key)["text"].replace("`", "")


def test_the_connector_s_lease_comes_before_the_simulator_s() -> None:
    told = run("lease_s").stdout
    assert told.index("at least 3: how long") < told.index("a prefill engine in a fleet file, optional")


@pytest.mark.parametrize(
    ("alert", "said"),
    [
        ("KvplanFreedEarly", ("embedded runtime, prefill", " > 0, for 15m")),
        ("KvplanVllmSlow", ("vLLM, decode", " > 2, for 10m")),
        ("KvplanChecksum", ("embedded runtime, decode", " > 0")),
    ],
)
def test_an_alert_says_where_it_fires_and_when(alert: str, said: tuple[str, str]) -> None:
    about, end = said
    told = answer(alert)
    assert (told["title"], told["text"].endswith(end)) == (f"an alert ({about}).", True)


def test_the_values_of_a_label_are_told() -> None:
    assert "its label direction is read, write or other." in run("kvplan_moved_bytes_total").stdout


@pytest.mark.parametrize("name", ["kvplan_mine.py", "kvplan_layouts/mine.yaml"])
def test_a_file_is_no_metric_whatever_it_is_called(name: str) -> None:
    said = run(name)
    assert said.exit_code == 2
    assert "metric" not in said.output


def test_a_model_in_a_file_of_another_name_is_no_unknown_word(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("kvplan: 1\nmodel: three\ntitle: T\ndtype: bf16\nlayers: 1\ncaches: {}\n")
    done = CliRunner().invoke(main, ["explain", "three", "--layouts", str(tmp_path)])
    assert (done.exit_code, "error[K006]: model 'three' must be in a file called three.yaml" in done.stderr) == (
        2,
        True,
    )


def test_an_engine_says_whether_shares_may_be_unequal() -> None:
    for engine, said in (("vllm", "workers hold equal shares"), ("custom", "shares may be unequal")):
        assert said in CliRunner().invoke(main, ["explain", engine]).stdout


@pytest.mark.parametrize(
    ("word", "title"),
    [
        ("nhd", "a value of order, an option of vllm, "),
        ("LBHNC", "a value of order, an option of vllm "),
        ("kv_dtype", "an option of vllm, "),
        ("retain", "a parameter of gqa; a key of needs"),
        ("heads", "a parameter of conv-tokens, cross-attention, "),
        ("table", "what a read copies: "),
    ],
)
def test_options_and_words_of_plans_are_explained(word: str, title: str) -> None:
    assert title.startswith(answer(word)["title"]) or answer(word)["title"].startswith(title)
    assert " ".join(run(word).stdout.split()).startswith(f"{word}: {title}".strip())


@pytest.mark.parametrize("word", ["nhd", "LBNHC"])
def test_a_value_is_explained_by_its_letters(word: str) -> None:
    said = run(word).stdout
    assert [letter for letter in "LBHNC" if f"    {letter}: " not in said] == []
    assert "DS: convolution states with a channel's taps side by side" in run("DS").stdout


def test_words_of_a_review_are_explained() -> None:
    assert "`kvplan-diff.yaml`" in run("accept").stdout
    assert "refuses the pair" in run("missing").stdout


def test_a_side_says_which_block_the_engine_makes_of_an_option() -> None:
    side = ["nemotron-3-nano-30b", "--decode", "tp=2,block=1024"]
    note = "note: block=1024, tokens of a block before a hybrid raises it, --block-size: blocks of attention have 3,072"
    assert note in run(*side).stdout
    assert "raises it" not in run("llama-3.1-8b", "--decode", "block=32").stdout


def test_an_option_in_tokens_may_have_words_for_numbers(tmp_path: Path) -> None:
    option = "{values: ['32', '3072'], aliases: {small: '32', large: '3072'}, unit: tokens, default: 64}"
    text = f"kvplan: 1\nengine: mine\nextends: vllm\ntitle: Mine\noptions:\n  pages: {option}\n"
    (tmp_path / "mine.yaml").write_text(text)
    for word, noted in (("small", True), ("large", False)):
        side = f"engine=mine,tp=2,block=1024,pages={word}"
        said = run("nemotron-3-nano-30b", "--decode", side, "--layouts", str(tmp_path))
        assert (said.exit_code, f"note: pages={word}" in said.stdout) == (0, noted), said.output
