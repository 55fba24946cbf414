"""Many dumps for one import of vLLM: a line of JSON in for each model, lines of JSON out. See README.md.

In: {"key", "config", "attempts", "variants", "orders"}. Attempts are lists of the options that `vllm_dump.py` has: the
first that gives a dump for any order counts. Variants are pairs, further options and orders, which are asked for on top
of it. Each model has a process of its own.

Out: {"key", "options", "order"} with "dump", "filled" and "left_out", or with "error", which is vLLM's own.
"""

import argparse
import collections
import itertools
import json
import os
import pathlib
import signal
import sys
import tempfile
import traceback

import vllm_ask
import vllm_dump

LIMIT_S = 300
# How much of an error is told.
LONGEST = 500


def answers(request):
    """Each answer of a model: those of the first attempt that serves and of its variants, else those of the first."""
    attempts = ((options, list(asked(request, options, request["orders"]))) for options in request["attempts"])
    first = next(attempts)
    options, found = next((each for each in itertools.chain([first], attempts) if served(each[1])), first)
    yield from found
    for more, orders in request["variants"] if served(found) else ():
        yield from asked(request, [*options, *more], orders)


def served(found):
    return any("dump" in answer for answer in found)


def asked(request, options, orders):
    """The answers of a model that is built once with some options, an order each."""
    about = {"key": request["key"], "options": options}
    args = vllm_dump.arguments(["", *options, "--order", orders[0]])
    try:
        model = vllm_ask.Asked(args, {"config": request["config"]})
    except Exception as error:
        yield from ({**about, "order": order, "error": told(error)} for order in orders)
        return
    about |= {"filled": model.filled, "left_out": model.left_out}
    for order in orders:
        try:
            yield {**about, "order": order, "dump": model.dump(order)}
        except Exception as error:
            yield {**about, "order": order, "error": told(error)}


def told(error):
    """An error with the place in vLLM's code that raised it."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{'/'.join(pathlib.Path(last.filename).parts[-2:])}:{last.lineno}"
    return f"{type(error).__name__}: {' '.join(str(error).split())[:LONGEST]} ({place})"


def begun(request, log):
    """The process that answers a request, and the file that it writes answers into."""
    path = pathlib.Path(tempfile.mkdtemp()) / "answers"
    if pid := os.fork():
        return pid, (request, path)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.alarm(LIMIT_S)
    with path.open("w") as out:
        for answer in answers(request):
            print(json.dumps(answer), file=out, flush=True)
    os._exit(0)


def ended(request, path, out):
    """Print what a process wrote."""
    lines = path.read_text().splitlines() if path.exists() else []
    if not lines:
        none = {"options": [], "order": request["orders"][0], "error": f"vLLM ended, or took more than {LIMIT_S} s"}
        lines = [json.dumps({"key": request["key"], **none})]
    print("\n".join(lines), file=out, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1, help="models that are built at the same time")
    parser.add_argument("--conv", default="DS", choices=("DS", "SD"))
    given = parser.parse_args()
    out, log = os.fdopen(os.dup(1), "w"), os.open(os.devnull, os.O_WRONLY)
    os.dup2(2, 1)
    vllm_ask.ready(vllm_dump.arguments(["", "--conv", given.conv]))
    vllm_ask.loaded()
    waiting, running = collections.deque(map(json.loads, sys.stdin)), {}
    while waiting or running:
        while waiting and len(running) < given.jobs:
            pid, about = begun(waiting.popleft(), log)
            running[pid] = about
        ended(*running.pop(os.wait()[0]), out)


if __name__ == "__main__":
    main()
