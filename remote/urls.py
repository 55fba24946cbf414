"""URLs in messages and logs, without credentials."""

from __future__ import annotations

import re

# A host with an optional port, up to the path. Any later @ belongs to the path.
HOST = r"(?:\[[^\]\s]*\]|[^/?#\s:@\[\]]*)(?::\d{1,5})?(?:[/?#\s]|$)"
# A user, optionally with a secret that may contain / ? # and @ unescaped. Anything that is no port counts as a secret
# up to the last @, even one in the path.
CREDENTIALS = re.compile(rf"://(?!{HOST})(?:[^/?#\s:]*:\S*@|[^/?#\s]*@)")
HIDDEN = "://…@"


def without_credentials(text: str) -> str:
    """Return a text whose URLs have no user and password, for messages and logs."""
    return CREDENTIALS.sub(HIDDEN, text)
