"""`make gpu-kit`: one archive with all that a machine with a GPU needs and a network is not there to fetch.

In it are this commit's tree, wheels for that machine's Python, and `gpu.sh`, which installs and runs them. torch and
numpy are taken to be there.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

NAME, MOST = "kvplan-gpu-kit", 45 << 20
NIXL = ("nixl==1.5.1", "nixl-cu13==1.5.1")
# Parts of NIXL's wheel: kernels for expert parallelism, headers, and second copies of its libraries.
LEFT_OUT = ("nixl_ep", "/headers/", ".scripts/")
NEEDED = (
    "lark", "jinja2", "markupsafe", "click", "rich", "markdown-it-py", "mdurl", "pygments", "packaging", "msgspec",
    "pyzmq", "pyyaml", "pytest", "pluggy", "iniconfig", "hypothesis", "sortedcontainers",
)  # fmt: skip
GLIBC = ("2_28", "2_27", "2_26", "2_17")


def build(root: Path, out: Path, python: str) -> Path:
    """Write the archive of the commit at `root` into the folder `out`; its path. Raises ValueError if too large."""
    archive = out / f"{NAME}.tar.gz"
    with TemporaryDirectory() as folder:
        kit = Path(folder) / NAME
        (kit / "wheels").mkdir(parents=True)
        fetched(kit / "wheels", python)
        tree(root, kit / "kvplan")
        (kit / "gpu.sh").write_bytes((Path(__file__).parent / "gpu.sh").read_bytes())
        with tarfile.open(archive, "w:gz") as made:
            made.add(kit, NAME)
    if (size := archive.stat().st_size) > MOST:
        raise ValueError(f"{archive} has {size} bytes, more than {MOST}")
    return archive


def fetched(folder: Path, python: str) -> None:
    """The wheels, NIXL's without what only other uses need."""
    platforms = [f"manylinux_{glibc}_x86_64" for glibc in GLIBC] + ["manylinux2014_x86_64", "manylinux1_x86_64"]
    chosen = [word for platform in platforms for word in ("--platform", platform)]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    where = ["--dest", str(folder), "--python-version", python, "--implementation", "cp", *chosen]
    subprocess.run([*pip, *where, *NIXL, *NEEDED], check=True)
    for wheel in folder.glob("nixl_cu13-*.whl"):
        thinned(wheel)


def thinned(wheel: Path) -> None:
    """Take out of a wheel what is LEFT_OUT: nothing is installed by its record."""
    whole = wheel.rename(wheel.with_suffix(".whole"))
    with zipfile.ZipFile(whole) as source, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as target:
        for entry in source.infolist():
            if not any(word in entry.filename for word in LEFT_OUT):
                target.writestr(entry, source.read(entry))
    whole.unlink()


def tree(root: Path, folder: Path) -> None:
    """The tree of the commit at `root`."""
    folder.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=root, check=True, stdout=subprocess.PIPE).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default="3.12", help="that machine's Python, as 3.12")
    parser.add_argument("--out", type=Path, default=Path(), help="the folder to write to")
    given = parser.parse_args()
    print(build(Path(__file__).parents[2], given.out, given.python))


if __name__ == "__main__":
    main()
