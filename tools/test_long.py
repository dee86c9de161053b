"""Run the long tests in full, part by part, and keep the results in docs/long-tests.md.

    python tools/test_long.py            every part that this commit has not passed yet
    python tools/test_long.py kill       one part

A part is a test file with long counts (marked ``long``, or counting with ``tests/scale.py``); its
name is the file's without ``test_``. Interrupt at will: the next run goes on with what is missing.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "long-tests.md"
LONG = re.compile(r"mark\.long|\bscale\.count\(|tests\.scale import")
HEAD = """# Long tests

Written by `make test-long`: every long count in full. The seed repeats a run:
`SPECOPS_SEED=N SPECOPS_SCALE=1 pytest FILE -m long`.

| part | commit | seed | seconds | result |
|---|---|---|---|---|
"""


def git(*words: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def parts() -> dict[str, Path]:
    """The test files that hold long tests, by name."""
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    return {
        path.stem.removeprefix("test_"): path for path in files if LONG.search(path.read_text())
    }


def results() -> dict[str, list[str]]:
    """The rows kept so far: part to its columns."""
    rows: dict[str, list[str]] = {}
    if RESULTS.exists():
        for line in RESULTS.read_text().splitlines():
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) == 5 and cells[0] not in ("part", "---"):
                rows[cells[0]] = cells
    return rows


def run(name: str, path: Path) -> list[str]:
    """Run one part in full; its row."""
    seed = secrets.randbelow(2**31)
    env = {**os.environ, "SPECOPS_SCALE": "1", "SPECOPS_SEED": str(seed)}
    started = time.monotonic()
    marked = ["-m", "long"] if "mark.long" in path.read_text() else []
    command = [sys.executable, "-m", "pytest", str(path), *marked, "-s", "-p", "no:xdist"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    sys.stdout.write(done.stdout)
    tail = done.stdout.strip().splitlines()[-1:] or ["no output"]
    figures = re.findall(r"^figures: (.+)$", done.stdout, re.MULTILINE)
    outcome = "; ".join([re.sub(r"=+", "", tail[0]).strip(), *figures])
    seconds = f"{time.monotonic() - started:.0f}"
    return [name, git("rev-parse", "--short", "HEAD"), str(seed), seconds, outcome]


def main(only: list[str]) -> int:
    """Run what is missing, or the parts named; 1 if any failed."""
    known, rows, head = parts(), results(), git("rev-parse", "--short", "HEAD")
    unknown = [name for name in only if name not in known]
    if unknown:
        sys.stderr.write(f"no part {json.dumps(unknown)}; there are: {', '.join(known)}\n")
        return 2
    for name in only or known:
        row = rows.get(name)
        if not only and row and row[1] == head and "failed" not in row[4]:
            print(f"{name}: passed at this commit")
            continue
        rows[name] = run(name, known[name])
        lines = ["| " + " | ".join(row) + " |" for _, row in sorted(rows.items())]
        RESULTS.write_text(HEAD + "\n".join(lines) + "\n")
    bad = [name for name in only or known if re.search(r"failed|error|no output", rows[name][4])]
    print(f"long tests: {len(known) - len(bad)} parts passed, {len(bad)} failed {bad or ''}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
