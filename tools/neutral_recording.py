"""Makes a recording fit to be shipped: only the managed server's processes, neutral paths.

    python tools/neutral_recording.py RECORDING OUT.jsonl.gz FROM=TO …

Made with ``specops console --record`` on a developer's machine, a recording tells of everything
that runs there. What is kept is what the demo shows; each FROM in any text becomes TO.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any


def kept(frame: dict[str, Any]) -> dict[str, Any]:
    """The frame without processes, ports, files and zombies that are not the server's."""
    if "view" not in frame:
        return frame
    view = frame["view"]
    runs = {run["run_id"] for run in view["runs"]}
    frame["processes"] = [
        {**p, "env": {k: v for k, v in p["env"].items() if k.startswith("SPECOPS_")}}
        for p in frame["processes"]
        if p["run_id"] in runs
    ]
    for run in view["runs"]:
        run["env"] = {k: v for k, v in run["env"].items() if k.startswith("SPECOPS_")}
    view["zombies"] = [z for z in view["zombies"] if z["run_id"] in runs]
    if view.get("snapshot"):
        view["snapshot"].update(artefacts=[], listening={}, protected=[])
    return frame


def main(source: str, out: str, *changes: str) -> None:
    """Rewrite one recording."""
    rows = []
    for number, row in enumerate(Path(source).read_text("utf-8").splitlines()):
        document = json.loads(row)
        text = json.dumps(kept(document) if number else document, ensure_ascii=False,
                          separators=(",", ":"))  # fmt: skip
        for change in changes:
            old, _, new = change.partition("=")
            text = text.replace(old, new)
        rows.append(text)
    data = "\n".join(rows).encode() + b"\n"
    Path(out).write_bytes(gzip.compress(data, 9, mtime=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
