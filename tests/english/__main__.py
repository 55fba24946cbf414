"""`make english`: the old turns of phrase that are left, a line each; exit code 1 if there are any."""

from __future__ import annotations

import sys

from tests.english.lint import files, findings


def main() -> int:
    found = list(findings(files()))
    for one in found:
        print(one)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
