"""Cases that need GPUs, with real engines on them: `python -m tests.sglang.gpu [WORDS…]`, `make sglang-gpu`.

KVPLAN_SGLANG_ENV names an environment that has SGLang for GPUs, and kvplan's requirements: `pip install '.[sglang]'`.
Prints an outcome for each case; ends with 1 if one is not as it should be, with 3 and the reason if nothing runs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.gpu_environment import CANNOT, CannotRunError, machine, visible
from tests.sglang import environment
from tests.sglang.cases import GPU_CASES
from tests.sglang.run import GOOD, played

# SGLang, how many GPUs it sees, and its release: one line.
COUNT = "import torch, sglang; print(torch.cuda.device_count(), sglang.__version__)"


def main(words: Sequence[str]) -> int:
    try:
        python, gpus, release = machine("KVPLAN_SGLANG_ENV", "SGLang", COUNT)
    except CannotRunError as error:
        print(f"cannot run: {error}")
        return CANNOT
    print(f"SGLang {release}, {gpus} GPUs")
    wanted = [case for case in GPU_CASES if all(word in case.name for word in words)]
    for case in wanted:
        if case.gpus > gpus:
            print(f"not run: {case.name}: {case.gpus} GPUs are needed, there are {gpus}")
    cases = [case for case in wanted if case.gpus <= gpus]
    folder = Path(tempfile.mkdtemp(prefix="kvplan-sglang-gpu-"))
    os.environ.update(visible(gpus))
    found = played(python, folder, cases, told={"PYTHONPATH": environment.paths(folder)})
    good = sum(one.word in GOOD for one in found)
    print(f"logs are in {folder}; {good} of {len(cases)} are as they should be")
    return int(good < len(cases))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
