"""``python -m tests.gpu.report [DIR]``: the rows of all parts as docs/gpu-report.md's tables."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs" / "gpu"
REPORT = ROOT / "docs" / "gpu-report.md"
TITLES = {
    "pair": "The shipped pair in SGLang and in the bundled engine",
    "lifecycle": "A server's life",
    "ranks": "A server over two GPUs",
    "failures-a": "Starts that fail, first third",
    "failures-b": "Starts that fail, second third",
    "failures-c": "Starts that fail, last third",
    "failures-d": "Starts that fail on a GPU without room",
    "nvml": "NVML against nvidia-smi",
}


def cell(text: str) -> str:
    """Text inside a table cell."""
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def table(rows: list[dict[str, Any]]) -> list[str]:
    """One part's rows."""
    lines = ["| | what | command | expected | seen |", "|---|---|---|---|---|"]
    for row in rows:
        mark = "yes" if row["ok"] else "**no**"
        cells = [mark, *(cell(row[key]) for key in ("title", "command", "expected", "seen"))]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def report(folder: Path) -> str:
    """The whole page. Raises ``FileNotFoundError`` where no part has results."""
    parts = {p: json.loads((folder / f"{p}.json").read_text()) for p in TITLES
             if (folder / f"{p}.json").exists()}  # fmt: skip
    if not parts:
        raise FileNotFoundError(f"{folder}: no results; run make test-gpu PART=… first")
    lines = ["# On a real NVIDIA GPU", ""]
    machine = next(iter(parts.values()))["facts"]["machine"]
    lines += ["| | |", "|---|---|", *(f"| {k} | {cell(v)} |" for k, v in machine.items()), ""]
    notes = folder / "notes.md"
    if notes.exists():
        lines += [notes.read_text().strip(), ""]
    for part, body in parts.items():
        good = sum(row["ok"] for row in body["rows"])
        seconds = body["facts"].get("seconds")
        end = "cut off before its end" if seconds is None else f"{seconds} s"
        lines += [f"## {TITLES[part]}", "",
                  f"`make test-gpu PART={part}`: {good} of {len(body['rows'])} as expected, "
                  f"{end}.", "", *table(body["rows"]), ""]  # fmt: skip
    return "\n".join(lines)


def main() -> int:
    """Print the page; write it when the results are the project's own."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    try:
        text = report(folder)
    except FileNotFoundError as error:
        print(f"gpu-report: {error}", file=sys.stderr)
        return 2
    if folder.resolve() == RESULTS:
        REPORT.write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
