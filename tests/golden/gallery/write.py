"""The pages of docs/gallery, made from the layout files alone. Run as a program it writes them and removes old ones."""

from __future__ import annotations

from pathlib import Path

from tests.golden.gallery.index import index_page
from tests.golden.gallery.kinds import kind_page
from tests.golden.gallery.left_out import SOURCE, left_out
from tests.golden.gallery.models import families, model_page
from tests.paths import ROOT

from kvplan.dsl.library import Library, load

GALLERY = ROOT / "docs" / "gallery"


def gallery(library: Library) -> dict[str, str]:
    """Path below docs/gallery -> text."""
    missing, found = left_out(SOURCE.read_text()), families(library)
    pages = {f"kinds/{name}.md": kind_page(library, name, missing.get(f"kind {name}", [])) for name in library.kinds}
    for stem, names in found.items():
        pages[f"models/{stem}.md"] = model_page(library, stem, names, missing.get(f"model {stem}", []))
    return {"README.md": index_page(library, missing), **pages}


def write(folder: Path, pages: dict[str, str]) -> None:
    """The folder with these pages and no others."""
    for path in set(folder.rglob("*.md")) - {folder / name for name in pages}:
        path.unlink()
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


if __name__ == "__main__":
    write(GALLERY, gallery(load()))
