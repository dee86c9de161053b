"""``python -m tests.gpu PART --out DIR``: one part of the suite on this machine's GPU.

Rows are saved after every check, so that a part that is cut off keeps what it saw. A part whose
file is in DIR and complete is not run again.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shutil
import sys
import time
from importlib import metadata
from pathlib import Path

from tests.gpu import failures, lab, lifecycle, nvml, pair, ranks

PARTS = {
    "nvml": nvml.run,
    "pair": pair.run,
    "lifecycle": lifecycle.run,
    "ranks": ranks.run,
    "failures-a": failures.run,
    "failures-b": failures.run,
    "failures-c": failures.run,
    "failures-d": failures.last,
}


def machine() -> dict[str, str]:
    """What the report says of the machine."""
    name, driver, total = lab.smi("name,driver_version,memory.total")[0]
    found = {"date": datetime.date.today().isoformat(), "gpu": name, "driver": driver,
             "gpu_memory_mib": total, "python": platform.python_version(),
             "kernel": platform.release()}  # fmt: skip
    for package in ("torch", "sglang", "sglang-kernel", "transformers", "triton", "asyncssh"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "absent"
    return found


def main() -> int:
    """Run one part; exit 1 when a check was not as expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu")
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--out", type=Path, default=Path("gpu-results"))
    args = parser.parse_args()
    if shutil.which("nvidia-smi") is None:
        print("tests.gpu: nvidia-smi is not here; the suite needs an NVIDIA GPU", file=sys.stderr)
        return 2
    done = args.out / f"{args.part}.json"
    if done.exists() and json.loads(done.read_text())["facts"].get("complete"):
        print(f"{args.part}: done already; remove {done} to run it again")
        return 0
    here = lab.make(args.part, args.out.resolve())
    here.facts["machine"] = machine()
    begun = time.monotonic()
    PARTS[args.part](here)
    here.facts["seconds"], here.facts["complete"] = round(time.monotonic() - begun), True
    here.save()
    return 0 if all(row.ok for row in here.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
