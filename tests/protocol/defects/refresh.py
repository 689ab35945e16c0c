"""Searches for defects again and records what finds them: `python -m tests.protocol.defects.refresh [NAME...]`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.protocol.defects.defects import everywhere, hunted, read, record


def main() -> int:
    """Hunt the named defects, or all, and write the table and the page."""
    names = set(sys.argv[1:])
    chosen = [defect for defect in read() if not names or defect.name in names]
    with tempfile.TemporaryDirectory() as directory:
        found = list(hunted([(defect, everywhere()) for defect in chosen], Path(directory)))
    record(found)
    for each in found:
        print(each.name, each.tried, each.scenario, each.seed, *each.problems[:1], each.error)  # noqa: T201 - a program
    return 0 if all(each.problems for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
