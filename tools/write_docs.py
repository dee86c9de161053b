"""Write the pages of docs/ that are generated from the code; ``--check`` only compares.

Exit status 1 with ``--check`` when a page is not what the code says.
"""

from __future__ import annotations

import sys
from pathlib import Path

from console.keys import document

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main(check: bool) -> int:
    """Write or compare every page."""
    stale = 0
    for name, text in {"keys.md": document()}.items():
        path = DOCS / name
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"{path}: differs from the code; run make docs")
        else:
            path.write_text(text)
            print(f"{path}: written")
    return stale if check else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
