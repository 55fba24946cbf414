"""Print a dump of where vLLM would put a model's caches, from vLLM's own code. See README.md."""

import argparse
import json
import pathlib
import sys

import vllm_ask

FOLDER = pathlib.Path(__file__).parent


def arguments(given=None):
    """Options by name; those of the command line where none are given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", help="a config.json, or a name in configs.json beside this script")
    parser.add_argument("--id", help="the model's name on its hub")
    parser.add_argument("--layout", help="the name of its layout file, where there is one")
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--dcp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--rank", type=int, default=0, help="the worker's tensor-parallel rank")
    parser.add_argument("--stage", type=int, default=0, help="the worker's pipeline stage")
    parser.add_argument("--order", default="LBHNC")
    parser.add_argument("--block", type=int, default=16, help="0 for the engine's own choice")
    parser.add_argument("--conv", default="DS", choices=("DS", "SD"))
    parser.add_argument("--kv-dtype", default="auto")
    parser.add_argument("--draft-tokens", type=int, default=0)
    parser.add_argument("--drafts", type=int, default=0, help="layers of multi-token prediction that are built")
    parser.add_argument("--prefix-caching", action="store_true")
    parser.add_argument("--kernel-sizes", help="16+32+64; the backend's own where it is left out")
    parser.add_argument("--backend", help=f"one of {', '.join(vllm_ask.BACKENDS)}, or the path of a class")
    parser.add_argument(
        "--device", default="meta", choices=("meta", "cpu"), help="cpu for classes that compute at once"
    )
    parser.add_argument("--v2", action="store_true", help="the model runner that some models want")
    parser.add_argument("--language-model-only", action="store_true", help="no towers for pictures or sound")
    parser.add_argument("--blocks", type=int, default=4, help="logical blocks of the pool")
    return parser.parse_args(given)


def main():
    args = arguments()
    known = json.loads((FOLDER / "configs.json").read_text())
    path = pathlib.Path(args.config)
    entry = (
        {"context": 4096, **known[args.config]} if args.config in known else {"config": json.loads(path.read_text())}
    )
    stdout, sys.stdout = sys.stdout, sys.stderr
    vllm_ask.ready(args)
    found = vllm_ask.Asked(args, entry).dump(args.order)
    sys.stdout = stdout
    print(vllm_ask.compact(found))


if __name__ == "__main__":
    main()
