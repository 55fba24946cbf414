"""URLs in messages and logs: where somebody asked, and not with which secret."""

from __future__ import annotations

import re

# A host, with a port or without one, up to the path: an @ that follows is in the path.
HOST = r"(?:\[[^\]\s]*\]|[^/?#\s:@\[\]]*)(?::\d{1,5})?(?:[/?#\s]|$)"
# A user, or a user and a secret, in which / ? # and @ may stand unescaped: what is no port is taken for a secret, which
# ends with the last @, be it one of the path.
CREDENTIALS = re.compile(rf"://(?!{HOST})(?:[^/?#\s:]*:\S*@|[^/?#\s]*@)")
HIDDEN = "://…@"


def without_credentials(text: str) -> str:
    """A text whose URLs have no user and password, for messages and logs."""
    return CREDENTIALS.sub(HIDDEN, text)
