"""Pairs across engines: the same model, other bytes. Simulated against naive indexing, or refused with the reason."""

from __future__ import annotations

from itertools import product

import pytest
from tests.paths import TESTS
from tests.shares import later

from kvplan.compiler.api import compile_pair
from kvplan.compiler.bind.bind import bind
from kvplan.compiler.check.sample import sample_request
from kvplan.compiler.check.simulate import simulate
from kvplan.compiler.check.trace import copies
from kvplan.compiler.errors import CompileError
from kvplan.compiler.placement.place import place
from kvplan.dsl.library import Library, load

TOYS = TESTS / "compiler/toys"
SIDES = {
    "vllm": "block=16",
    "pages": "engine=vllm-legacy",
    "planes": "engine=vllm-legacy,backend=planes,order=nhd,block=32",
    "gaudi": "engine=gaudi,block=48",
    "sglang": "engine=sglang,block=1",
    "hnd": "engine=sglang,order=hnd,block=64",
}
LATENT = {
    **{name: SIDES[name] for name in ("vllm", "pages", "gaudi", "sglang")},
    "ascend": "engine=ascend",
    "tiles": "engine=ascend,order=nz",
    "rbln": "engine=rbln,block=48",
}
TILES = {**LATENT, "hnd": SIDES["hnd"]}
CUSTOM = "custom,order=k-then-v,latent=LBHNC,form=by_retention"
HYBRID = {
    **{name: SIDES[name] for name in ("vllm", "pages", "sglang")},
    "gaudi": "engine=gaudi,block=48,form=by_page",
    "gaudi pages": "engine=gaudi,form=by_page,conv=SD,block=16",
}
UNLIKE = {
    **{name: SIDES[name] for name in ("vllm", "sglang", "hnd")},
    "rows": "engine=vllm-legacy,place=LBHNC",
    "rows by token": "engine=vllm-legacy,place=LBNHC",
}
# An indexer's kernels on CUDA take 64 tokens alone; others take what `kernel_sizes` says.
SPARSE = {
    "vllm": "block=16,kernel_sizes=16",
    "pages": "engine=vllm-legacy",
    "by token": "engine=vllm-legacy,order=nhd,block=32,kernel_sizes=16",
    "sglang": "engine=sglang,block=64",
}
MODELS = {
    "toy-heads": SIDES,
    "toy-unlike": UNLIKE,
    "toy-windows": SIDES,
    "toy-tiles": TILES,
    "toy-latent": LATENT,
    "toy-sparse": SPARSE,
    "toy-mamba2": HYBRID,
    "toy-delta": HYBRID,
    "toy-kda": HYBRID,
    "toy-conv": HYBRID,
}
CROSSINGS = [
    (model, one, other) for model, sides in MODELS.items() for one, other in product(sides, sides) if one != other
]


@pytest.fixture(scope="module")
def library() -> Library:
    return load(layouts=(TOYS,))


# `make test` has every pair of engines, for every eighth model that both can store; `make test-all` has all.
NOW = [c for n, c in enumerate(CROSSINGS) if sum(c[1:] == before[1:] for before in CROSSINGS[:n]) % 8 == 0]


@pytest.mark.parametrize(("model", "prefill", "decode"), [*NOW, *later(c for c in CROSSINGS if c not in NOW)])
def test_every_pair_of_engines(library: Library, model: str, prefill: str, decode: str) -> None:
    sides = MODELS[model]
    made = compile_pair(library, model, f"{sides[prefill]},tp=2", f"{sides[decode]},tp=4")
    longest = max(
        group.tokens for side in (made.prefill, made.decode) for group in side.groups if group.store == "tokens"
    )
    request = sample_request(made.prefill, made.decode, (5, max(117, 2 * longest + 21)), seed=5)
    report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
    assert report.right, report.text()
    assert report.bytes


@pytest.mark.parametrize("place", ["halves-inside", "rows-inside", "k-then-v-inside"])
@pytest.mark.parametrize("dtype", ["bf16", "fp8_per_token_head"])
def test_blocks_across_layers(library: Library, place: str, dtype: str) -> None:
    inside = f"engine=vllm-legacy,kv_dtype={dtype},place={place},tp=1"
    for pair in ((inside, f"kv_dtype={dtype},tp=2"), (f"kv_dtype={dtype},tp=2", inside)):
        made = compile_pair(library, "toy-heads", *pair)
        request = sample_request(made.prefill, made.decode, (5, 60), seed=5)
        report = simulate(made.plan, made.prefill, made.decode, copies(made.plan, request), request)
        assert report.right, report.text()


@pytest.mark.parametrize(
    ("model", "prefill", "decode"),
    [
        ("toy-heads", "engine=gaudi,kv_dtype=fp8_inc", "kv_dtype=fp8_e4m3"),
        ("toy-heads", "engine=gaudi,kv_dtype=fp8_inc", "engine=sglang,kv_dtype=fp8_e4m3"),
        ("toy-heads", "engine=gaudi", "kv_dtype=bfloat16"),
        ("toy-latent", "kv_dtype=fp8_ds_mla", "engine=sglang,kv_dtype=fp8_ds_mla"),
        ("toy-latent", "engine=gaudi,kv_dtype=fp8_inc", "engine=vllm-legacy,kv_dtype=fp8"),
        ("toy-sparse", "block=64,kv_dtype=fp8,sparse=plain", "engine=sglang,block=64,kv_dtype=fp8"),
        ("minimax-m3", "block=128,kv_dtype=fp8", "block=128,kv_dtype=fp8_e4m3"),
    ],
)
def test_what_is_stored_decides_not_the_word_for_it(library: Library, model: str, prefill: str, decode: str) -> None:
    assert compile_pair(library, model, f"{prefill},tp=1", f"{decode},tp=2").plan.reads


@pytest.mark.parametrize(
    ("model", "prefill", "decode", "code", "said"),
    [
        ("toy-heads", "kv_dtype=fp8_per_token_head", "engine=gaudi,kv_dtype=fp8", "C133", "k_scale"),
        ("toy-heads", "kv_dtype=fp8", "engine=sglang,kv_dtype=fp8_e5m2", "C134", "fp8_e5m2"),
        ("toy-heads", "", "engine=gaudi,kv_dtype=fp8", "C134", "fp8"),
        ("toy-heads", "", "engine=gaudi,kv_dtype=fp8_per_token_head", "S009", "kv_dtype"),
        ("toy-heads", "", "engine=gaudi,kv_dtype=f16", "S009", "kv_dtype"),
        ("toy-latent", "kv_dtype=fp8_ds_mla", "engine=gaudi,kv_dtype=fp8", "C133", "scale"),
        ("toy-sparse", "block=64", "engine=gaudi", "C110", "indexer"),
        ("toy-sparse", "block=64", "engine=sglang", "C110", "64 tokens, not 1"),
        ("toy-unlike", "", "engine=gaudi", "C110", "one shape"),
        ("toy-unlike", "", "engine=vllm-legacy", "C110", "place=LBHNC"),
        ("toy-heads", "", "engine=vllm-legacy,place=LBHNC", "C110", "leave it out"),
        ("toy-mamba2", "", "engine=gaudi", "C110", "form=by_page"),
        ("toy-mamba2", "", "engine=vllm-legacy,backend=planes", "C110", "backend=pages"),
        ("toy-mamba2", "", "engine=vllm-legacy,place=rows-inside", "C110", "beside states"),
        ("toy-mamba2", "", "engine=sglang,recurrent=bf16", "C110", "recurrent=f32"),
        ("toy-mamba2", "", "engine=gaudi,form=by_page,draft_tokens=2", "C110", "draft_tokens=2"),
        ("toy-windows", "", "engine=gaudi,form=by_page", "C110", "form=by_tokens"),
        ("toy-windows", "", "engine=vllm-legacy,place=halves-inside", "C110", "windows or chunks"),
        ("toy-heads", "", "engine=sglang,order=vectorized_5d", "C110", "16 bytes"),
        ("toy-sparse", "block=64,kv_dtype=fp8", "engine=sglang,block=64", "C110", "kv_dtype=fp8_ds_mla"),
        ("toy-sparse", "block=64,kv_dtype=fp8_e5m2", "engine=sglang,block=64", "C110", "sparse=plain"),
        ("toy-sparse", "", "engine=vllm-legacy,kv_dtype=fp8", "C110", "kv_dtype=fp8_ds_mla"),
        ("mimo-v2-flash", "", "engine=sglang", "C110", "does not count the token itself"),
        ("toy-heads", "", "engine=vllm-legacy,kv_dtype=fp8_per_token_head,backend=planes", "C110", "Triton"),
        ("toy-heads", "", "engine=vllm-legacy,tp=3", "C110", "tp=3"),
        ("whisper-large-v3", "", "engine=sglang", "C110", "encoder"),
        ("toy-heads", "", "engine=ascend,order=nz", "C110", "tiles of 16"),
        ("toy-heads", "", "engine=ascend,block=64", "C110", "pages of 128 tokens"),
        ("toy-heads", "kv_dtype=fp8", "engine=ascend,kv_dtype=fp8", "S009", "kv_dtype"),
        ("toy-sparse", "block=64", "engine=ascend", "C110", "record=bf16"),
        ("toy-mamba2", "", "engine=ascend", "C110", "share one allocation"),
        ("minimax-m3", "block=128", "engine=ascend", "C110", "choose tokens"),
        ("toy-heads", "", "engine=rbln", "C110", "not 8"),
        ("toy-windows", "", "engine=rbln", "C110", "within one block"),
        ("toy-mamba2", "", "engine=rbln", "C110", "states"),
        ("toy-unlike", "", "engine=rbln", "C110", "one shape"),
        ("toy-heads", "kv_dtype=f16", "engine=rbln,kv_dtype=f16", "C110", "leave kv_dtype out"),
    ],
)
def test_what_an_engine_does_not_have_is_refused(
    library: Library, model: str, prefill: str, decode: str, code: str, said: str
) -> None:
    sides = (f"{prefill},tp=1".lstrip(","), decode if "tp=" in decode else f"{decode},tp=1")
    with pytest.raises(CompileError) as caught:
        compile_pair(library, model, *sides)
    assert (caught.value.code, said in str(caught.value)) == (code, True), str(caught.value)


@pytest.mark.parametrize(
    ("real", "custom"),
    [
        ("engine=vllm-legacy,backend=planes,tp=2", "order=planes,tp=2"),
        ("engine=vllm-legacy,tp=2", "order=k-then-v,tp=2"),
        ("engine=vllm-legacy,place=rows-inside,tp=2", "order=rows-inside,rows=shared,tp=2"),
        ("engine=gaudi,tp=2", "order=k-and-v,block=128,tp=2"),
        ("engine=sglang,tp=4,block=32", "order=planes-by-token,block=32,tp=4"),
        ("engine=sglang,tp=1,block=16,order=vectorized_5d", "order=shuffled-planes,tp=1"),
    ],
)
def test_the_engine_of_options_can_be_any_of_them(library: Library, real: str, custom: str) -> None:
    model = library.model("toy-heads")
    made = (
        compile_pair(library, "toy-heads", real, "tp=2"),
        compile_pair(library, "toy-heads", f"engine=custom,{custom}", "tp=2"),
    )
    assert made[0].plan.prefill.workers == made[1].plan.prefill.workers
    assert (
        bind(library, model, real).groups[0].tokens == bind(library, model, f"engine=custom,{custom}").groups[0].tokens
    )


@pytest.mark.parametrize(
    ("model", "real", "custom"),
    [
        ("toy-mamba2", "engine=sglang,block=16,tp=2", "order=planes-by-token,conv=DS-apart,tp=2"),
        ("toy-sparse", "engine=sglang,block=64,tp=2", "order=planes,latent=LBHNC,block=64,tp=2"),
        (
            "toy-mamba2",
            "engine=gaudi,form=by_page,block=16,conv=DS,tp=2",
            "order=k-and-v,form=by_page,rows=longest,tp=2",
        ),
    ],
)
def test_the_engine_of_options_has_their_states_too(library: Library, model: str, real: str, custom: str) -> None:
    sides = [
        compile_pair(library, model, text, "block=64,tp=2").plan.prefill for text in (real, f"engine=custom,{custom}")
    ]
    assert sides[0].workers == sides[1].workers


@pytest.mark.parametrize("model", ["toy-windows", "toy-sparse", "toy-mamba2"])
def test_the_engine_of_options_forms_their_groups(library: Library, model: str) -> None:
    sides = [
        bind(library, library.model(model), f"engine={text},tp=2") for text in ("vllm-legacy,kernel_sizes=16", CUSTOM)
    ]
    found = [[(g.name, g.members, g.tokens, g.ratio) for g in side.groups] for side in sides]
    assert found[0] == found[1]
    assert len(found[0]) == {"toy-windows": 6, "toy-sparse": 1, "toy-mamba2": 5}[model]


@pytest.mark.parametrize(
    ("model", "text", "names"),
    [
        ("toy-delta", "", ("conv", "ssm")),
        ("toy-delta", ",conv=DS", ("conv", "ssm")),
        ("toy-delta", ",conv=SD", ("conv", "ssm")),
        ("toy-kda", ",conv=DS", ("conv", "ssm")),
        ("toy-mamba2", "", ("conv", "ssm")),
        ("toy-mamba2", ",conv=DS", (None,)),
        ("toy-mamba2", ",conv=SD", (None,)),
    ],
)
def test_delta_nets_lie_apart_on_gaudi_whatever_states_of_mamba_do(
    library: Library, model: str, text: str, names: tuple[str | None, ...]
) -> None:
    side = bind(library, library.model(model), f"engine=gaudi,form=by_page,tp=1{text}")
    unit = next(unit for unit in place(side, side.workers[0]) if {part.name for part in unit.parts} - {"k", "v"})
    assert tuple(part.name for part in unit.parts) == names
    assert all(part.stride == part.page for part in unit.parts) == (names != (None,))
