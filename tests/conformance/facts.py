"""Ask a release for the caches of every configuration: `python -m tests.conformance.facts RELEASE [WORD…]`.

A RELEASE of vLLM gives dumps. Architectures that are new get the defaults of their class as a configuration. `sglang`,
the release that `make sglang` installs, gives its pools, for a configuration of each architecture that it serves: the
first that it can build.
`transformers`, the release beside vLLM, gives what its own cache holds of each layer.
Writes the facts of the release, then lists what came and went, and what `kvplan new` accepts without a warning and gets
wrong. WORDs: keys with one of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.conformance import environment
from tests.conformance.corpus import (
    CONFIGURATIONS,
    FOLDER,
    Configuration,
    Release,
    caches_line,
    configuration_line,
    configurations,
    facts,
    facts_line,
    lines,
    pools_line,
    releases,
)
from tests.conformance.judge import WRONG, judged_release
from tests.paths import ROOT
from tests.sglang import environment as sglang_environment

from kvplan.dsl.text.grouped import grouped

REGISTRY, MANY = (environment.DUMPS / name for name in ("vllm_registry.py", "vllm_many.py"))
DEFAULTS = CONFIGURATIONS / "defaults.jsonl"
ORDERS = ("LBHNC", "LBNHC", "LHBNC", "BLHNC", "BLNHC", "BHLNC")
# One in blocks, one in layers: what configurations are asked for of which their architecture has another.
FEW = ("LBHNC", "BLHNC")
# The engine's own block first; then what lets models be built that cannot be built otherwise.
ATTEMPTS = (
    ("--block", "0"),
    (),
    ("--block", "64"),
    ("--block", "128"),
    ("--block", "256"),
    ("--backend", "triton"),
    ("--device", "cpu"),
    ("--device", "cpu", "--backend", "triton"),
    ("--v2",),
    ("--v2", "--device", "cpu"),
    ("--language-model-only",),
)
# Options of the SGLang runs: models that come with kvplan and small ones run all, the others only pages of 16 tokens.
SHIPPED = ("fixture--", "tiny--")
POOLS = (
    {"page_size": 16},
    {"page_size": 1},
    {"page_size": 16, "tp_size": 2},
    {"page_size": 16, "kv_cache_dtype": "fp8_e5m2"},
    {"page_size": 64, "kv_cache_dtype": "mxfp8"},
    {"page_size": 128, "kv_cache_dtype": "mxfp8"},
)
# So many configurations of an architecture are tried.
MOST = 3
Answer = Mapping[str, Any]
Ask = Callable[[Sequence[Configuration]], Iterable[Answer]]
NO_CLASS = "SGLang has no class for it"
VARIANTS = (
    (("--tp", "2"), ("LBHNC", "BLHNC", "BHLNC")),
    (("--pp", "2", "--stage", "1"), FEW),
    (("--kv-dtype", "fp8"), FEW),
    (("--draft-tokens", "2"), FEW[:1]),
)


def main(arguments: Sequence[str]) -> int:
    options = read(arguments)
    if options.release == "sglang":
        return of_sglang(options.words)
    if options.release == "transformers":
        return of_transformers(options.words)
    release = Release("vllm", options.release)
    known = configurations()
    registry = asked(release, [str(REGISTRY)])[0]
    before = facts(newest("vllm"))
    told = came_and_went(known, registry, before)
    add_defaults(told["new"], registry["defaults"], f"vllm {registry['version']}")
    known = configurations()
    served = [c for key, c in known.items() if key in before or c.architecture in registry["architectures"]]
    wanted = [c for c in served if not options.words or any(word in c.key for word in options.words)]
    answers = asked(release, [str(MANY), "--jobs", str(os.cpu_count() or 1)], requests(wanted))
    write(release, grouped((answer["key"], answer) for answer in answers), whole=not options.words)
    for what, names in told.items():
        print(f"{what} in {release}: {', '.join(names) or 'none'}")
    tell_wrong(known, release, options.words)
    return 0


def of_sglang(words: Sequence[str]) -> int:
    """Ask SGLang and keep its answers, except for architectures without a class in it."""
    release, known = Release("sglang", sglang_version()), configurations()
    answers = answered(of_pools, in_turn(known, words))
    fresh = {key: pools_line(key, one["pools"], one["error"]) for key, one in answers.items() if served(one)}
    keep(release, fresh, whole=not words)
    tell_wrong(known, release, words)
    return 0


def of_pools(wanted: Iterable[Configuration]) -> list[dict[str, Any]]:
    """Ask SGLang for the pools of each configuration."""
    given = (
        {"key": one.key, "config": one.config, "options": POOLS if one.key.startswith(SHIPPED) else POOLS[:1]}
        for one in wanted
    )
    text = "".join(f"{json.dumps(one)}\n" for one in given)
    command = ["nice", "-n", "5", str(sglang_environment.ready()), str(FOLDER / "sglang_pools.py")]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT / "src", ROOT)))}
    done = subprocess.run(command, input=text, env=surroundings, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def of_transformers(words: Sequence[str]) -> int:
    """Ask transformers, beside the newest release of vLLM. Architectures that it alone has get configurations, too."""
    vllm, script = newest("vllm"), str(FOLDER / "transformers_caches.py")
    (about,) = asked(vllm, [script, "--defaults"])
    release, before = Release("transformers", about["version"]), {c.architecture for c in configurations().values()}
    add_defaults(sorted({*about["defaults"]} - before), about["defaults"], str(release).replace("-", " "))
    known = configurations()
    answers = answered(
        lambda wanted: asked(vllm, [script], ({"key": one.key, "config": one.config} for one in wanted)),
        in_turn(known, words),
    )
    fresh = {key: caches_line(key, one.get("layers", ()), one.get("error", "")) for key, one in answers.items()}
    keep(release, fresh, whole=not words)
    tell_wrong(known, release, words)
    return 0


def newest(engine: str) -> Release:
    return next(release for release in reversed(releases()) if release.engine == engine)


def in_turn(known: Mapping[str, Configuration], words: Sequence[str]) -> list[list[Configuration]]:
    """Lists of configurations; of each list the first that an engine can build is wanted.

    With words every configuration that has one is a list. Without words there is a list for each architecture, with
    those first that vLLM's code built, and one for each model more that comes with kvplan.
    """
    if words:
        return [[found] for key, found in known.items() if any(word in key for word in words)]
    built = {found.key for found in facts(newest("vllm")).values() if found.dumps}
    ordered = sorted(known.values(), key=lambda found: (not found.key.startswith(SHIPPED), found.key not in built))
    of_each = grouped((found.architecture, found) for found in ordered)
    more = [[found] for own in of_each.values() for found in own[1:] if found.key.startswith(SHIPPED)]
    others = ([own[0], *(o for o in own[1:] if not o.key.startswith(SHIPPED))] for _, own in sorted(of_each.items()))
    return [*more, *(own[:MOST] for own in others)]


def answered(ask: Ask, lists: Sequence[Sequence[Configuration]]) -> dict[str, Answer]:
    """By key, of each list the first answer with caches; where none has any, the answer to the first configuration."""
    said: dict[str, Answer] = {}
    for turn in range(MOST):
        left = [own for own in lists if turn < len(own) and not any(_has_caches(said.get(one.key)) for one in own)]
        said |= {answer["key"]: answer for answer in (ask([own[turn] for own in left]) if left else ())}
    chosen = (next((one.key for one in own if _has_caches(said.get(one.key))), own[0].key) for own in lists)
    return {key: said[key] for key in chosen if key in said}


def _has_caches(answer: Answer | None) -> bool:
    return answer is not None and bool(answer.get("pools") or answer.get("layers"))


def served(answer: Mapping[str, Any]) -> bool:
    return bool(answer["pools"]) or NO_CLASS not in answer["error"]


def sglang_version() -> str:
    """The release that `make sglang` installs."""
    found = re.search(r"^sglang==(\S+)", sglang_environment.REQUIREMENTS.read_text(), re.MULTILINE)
    assert found, "the requirements name no release of SGLang"
    return found[1]


def tell_wrong(known: Mapping[str, Configuration], release: Release, words: Sequence[str]) -> None:
    wrong = [v for v in judged_release(known, release, words) if v.word == WRONG]
    print(f"accepted without a warning, and wrong: {len(wrong)}")
    for verdict in wrong:
        print(f"  {verdict.key}: {verdict.why}")


def read(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tests.conformance.facts", description=__doc__)
    parser.add_argument("release", help="a release of vLLM, 0.33.0, or sglang, or transformers")
    parser.add_argument("words", nargs="*", help="ask for the configurations whose keys have one of them")
    return parser.parse_args(arguments)


def asked(release: Release, command: Sequence[str], given: Iterable[Mapping[str, object]] = ()) -> list[dict[str, Any]]:
    """Run a script in the engine's environment with `given` as lines of JSON; return its answers, one per line."""
    python, surroundings = environment.ready(release.version)
    text = "".join(f"{json.dumps(value)}\n" for value in given)
    done = subprocess.run(
        ["nice", "-n", "5", str(python), *command],
        input=text,
        env=surroundings,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def came_and_went(
    known: Mapping[str, Configuration], registry: Mapping[str, Any], before: Iterable[str]
) -> dict[str, list[str]]:
    """Architectures of which no configuration is known, and those that were asked for `before` and are not served."""
    here = {found.architecture for found in known.values()}
    served = {*registry["architectures"]}
    return {"new": sorted(served - here), "removed": sorted({known[key].architecture for key in before} - served)}


def add_defaults(names: Iterable[str], defaults: Mapping[str, Any], release: str) -> None:
    """Configurations of new architectures, where a class has defaults."""
    made = ((name, defaults[name]) for name in names if name in defaults)
    origin = f"defaults of its class beside {release}"
    fresh = [configuration_line(Configuration(f"defaults--{name}", name, origin, config)) for name, config in made]
    if not fresh:
        return
    with DEFAULTS.open("a") as file:
        file.writelines(f"{line}\n" for line in fresh)


def requests(wanted: Sequence[Configuration]) -> Iterator[dict[str, object]]:
    """The first configuration of each architecture in all orders and variants, the others in some."""
    first = {found.architecture: found.key for found in reversed(wanted)}
    for found in wanted:
        whole = first[found.architecture] == found.key
        variants, orders = (VARIANTS, ORDERS) if whole else ((), FEW)
        asked_for = {"attempts": ATTEMPTS, "variants": variants, "orders": orders}
        yield {"key": found.key, "config": found.config, **asked_for}


def write(release: Release, answers: Mapping[str, Sequence[Mapping[str, Any]]], whole: bool) -> None:
    """Write the facts; of a part of the corpus, beside the others."""
    keep(release, {key: line_of(key, answers[key]) for key in answers}, whole)


def keep(release: Release, fresh: Mapping[str, str], whole: bool) -> None:
    """Write lines by key; of a part of the corpus, beside the others."""
    kept = {} if whole else {json.loads(line)["key"]: line for line in lines(release.facts_file)}
    release.facts_file.write_text("".join(f"{line}\n" for _, line in sorted({**kept, **fresh}.items())))


def line_of(key: str, answers: Sequence[Mapping[str, Any]]) -> str:
    """The dumps of a configuration; if there are none, the first reason."""
    dumps = [answer["dump"] for answer in answers if "dump" in answer]
    about = {word: answers[0][word] for word in ("filled", "left_out") if dumps and answers[0].get(word)}
    return facts_line(key, dumps, answers[0].get("error", ""), about)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
