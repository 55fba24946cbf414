"""Cases that need GPUs, with real engines on them: `python -m tests.vllm.gpu [WORDS…]`, `make vllm-gpu`.

KVPLAN_VLLM_ENV names an environment that has vLLM for GPUs, and kvplan's requirements: `pip install '.[vllm]'` there.
Prints an outcome for each case; ends with 1 if one is not as it should be, with 3 and the reason if nothing runs.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import SpecifierSet
from tests.gpu_environment import CANNOT, CannotRunError, machine, visible
from tests.vllm.__main__ import report, run
from tests.vllm.cases import KVPLAN, PLAIN, Case, Connector, Mistake, Prompts, Setup, Side
from tests.vllm.process import Launcher

# vLLM for GPUs, how many it sees, and its release: one line, or why there is none.
COUNT = """
import torch, vllm
from vllm.platforms import current_platform
count = f"{torch.cuda.device_count()} {vllm.__version__}"
print(count if current_platform.is_cuda() else "its vLLM is for " + current_platform.device_name)
"""
# In place of what an engine on cores is told.
ENVIRONMENT = {"UCX_TLS": "all", "TORCHDYNAMO_DISABLE": "0"}


@dataclass(frozen=True)
class GpuCase:
    """A case, the GPUs that both engines have together – with one they share it – and which releases it is for."""

    case: Case
    gpus: int = 1
    releases: str = ""


# Kernels for GPUs take no float32: logprobs differ as rounding does, which is more than on cores.
GPU = Setup(
    "qwen3", Side(16), Side(32), dtype="bfloat16", logprob_gap=0.1, pages_known=False, device="cuda",
    llm=(("gpu_memory_utilization", 0.3),),
)  # fmt: skip
GRAPHS = replace(GPU, llm=(*GPU.llm, ("enforce_eager", False)))
DS = (("VLLM_SSM_CONV_STATE_LAYOUT", "DS"),)
HEADS_FIRST, TOKENS_FIRST = ((("VLLM_KV_CACHE_LAYOUT", order),) for order in ("HND", "NHD"))
HYBRID = replace(GPU, prefill=Side(None), decode=Side(None), prefix_caching=False, environment=DS)


def gpu_case(name: str, setup: Setup, play: Prompts | Mistake = PLAIN, gpus: int = 1, releases: str = "") -> GpuCase:
    return GpuCase(Case(name, setup, play, KVPLAN), gpus, releases)


GPU_CASES: tuple[GpuCase, ...] = (
    gpu_case("memory of a GPU is registered and read, 16 → 32", GPU),
    gpu_case("pushed, 16 → 32", replace(GPU, mode="push")),
    gpu_case("CUDA graphs, 16 at once", GRAPHS, Prompts((200,) * 16, at_once=True)),
    gpu_case("CUDA graphs, pushed, 16 at once", replace(GRAPHS, mode="push"), Prompts((200,) * 16, at_once=True)),
    gpu_case("orders NHD → HND", replace(
        GPU, prefill=Side(16, environment=TOKENS_FIRST), decode=Side(32, environment=HEADS_FIRST))),
    gpu_case("orders HND → NHD", replace(
        GPU, prefill=Side(16, environment=HEADS_FIRST), decode=Side(32, environment=TOKENS_FIRST))),
    gpu_case("fp8 KV", replace(GPU, llm=(*GPU.llm, ("kv_cache_dtype", "fp8")))),
    gpu_case("sliding and full, 16 → 32", replace(GPU, model="gemma3")),
    gpu_case("Mamba-2 and attention", replace(HYBRID, model="nemotron_h")),
    gpu_case("gated delta net, by tokens", replace(HYBRID, model="qwen3_next")),
    gpu_case("MLA, by tokens", replace(GPU, model="deepseek", prefill=Side(64), decode=Side(64))),
    gpu_case("sleep mode is refused", replace(GPU, llm=(*GPU.llm, ("enable_sleep_mode", True))), Mistake.SLEEP,
             releases="<0.33"),
    gpu_case("tp 2 → 1", replace(GPU, prefill=Side(16, tp=2)), gpus=2),
    gpu_case("pp 2 → 1", replace(GPU, prefill=Side(16, pp=2)), gpus=2),
    gpu_case("decode context parallel 2 → 1", replace(GPU, prefill=Side(16, tp=8, dcp=2)), gpus=8),
)  # fmt: skip


def main(words: Sequence[str]) -> int:
    try:
        python, gpus, release = machine("KVPLAN_VLLM_ENV", "vLLM", COUNT)
    except CannotRunError as error:
        print(f"cannot run: {error}")
        return CANNOT
    wanted = [each for each in GPU_CASES if all(word in each.case.name for word in words)]
    reasons = {each.case: unfit(each, gpus, release) for each in wanted}
    for case, reason in reasons.items():
        if reason:
            print(f"not run: {case.name}: {reason}")
    cases = [case for case, reason in reasons.items() if not reason]
    folder = Path(tempfile.mkdtemp(prefix="kvplan-vllm-gpu-"))
    bad = 0
    with Launcher(python, folder, ENVIRONMENT | visible(gpus)) as launcher:
        for case, outcome in run(launcher, cases, Connector.KVPLAN):
            report(case, Connector.KVPLAN, outcome)
            bad += not outcome.as_wanted
    print(f"logs are in {folder}; {len(cases) - bad} of {len(cases)} are as they should be")
    return int(bad > 0)


def unfit(wanted: GpuCase, gpus: int, release: str) -> str:
    """Why a case is not for this machine, empty if it is."""
    if wanted.gpus > gpus:
        return f"{wanted.gpus} GPUs are needed, there are {gpus}"
    fits = SpecifierSet(wanted.releases, prereleases=True).contains(release)
    return "" if fits else f"it is for vLLM {wanted.releases}, this is {release}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
