"""``python -m console.diagnosis FILE [--json]``: the same answer as ``specops diagnose``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from console.diagnosis import diagnose, diagnosis_to_json


def main(argv: list[str]) -> int:
    """Print the diagnosis of one file, as JSON or in words; exit status 2 for a wrong call."""
    files = [arg for arg in argv if not arg.startswith("--")]
    if len(files) != 1:
        sys.stderr.write("usage: python -m console.diagnosis FILE [--json]\n")
        return 2
    try:
        data = Path(files[0]).read_bytes()
    except OSError as error:
        sys.stderr.write(f"{files[0]}: cannot be read: {error.strerror} (name a log file)\n")
        return 2
    found = diagnose(data)
    if "--json" in argv:
        sys.stdout.write(json.dumps(diagnosis_to_json(found), ensure_ascii=True) + "\n")
    else:
        sys.stdout.write(f"{found.category}: {found.summary}\n{found.fix}\n")
    return 0 if found.category == "none" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
