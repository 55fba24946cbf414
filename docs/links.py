"""A hook of the site: links that leave docs/, to files of the repository, go to where its source is shown; and fences
of consoles lose the exit code that tests read, with which they would be no fences there.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
EXIT_CODE = re.compile(r"^(```console) exit-code=\d+$", re.MULTILINE)
OUTSIDE = re.compile(r"\]\((?P<path>(?:\.\./)+[^)#]+)(?P<anchor>#[^)]*)?\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    folder = posixpath.join("docs", posixpath.dirname(page.file.src_uri))
    return OUTSIDE.sub(lambda link: shown(link, folder, config.repo_url), EXIT_CODE.sub(r"\1", markdown))


def shown(link: re.Match[str], folder: str, repository: str) -> str:
    """The link as it is on the site. One to nothing stays as it is, and the build warns of it."""
    path = posixpath.normpath(posixpath.join(folder, link["path"]))
    if path.startswith("docs/") or not (ROOT / path).exists():
        return link[0]
    return f"]({repository}/blob/main/{path}{link['anchor'] or ''})"
