"""Say what installing PyTorch will download; stop before several gigabytes unless told to go on.

Exit status 0: go on; 3: a CUDA build would be fetched and nobody agreed to it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

CUDA_GB = 3
"""Download of a CUDA build of torch 2.13 with its nvidia-* packages, in GB, rounded."""
CPU_MB = 200
"""Download of a CPU build for Linux, in MB, rounded."""


def packages(pip: list[str]) -> dict[str, str]:
    """What pip would install, name to version, without installing it."""
    wanted = ["-c", "constraints.txt", "torch>=2.9,<3"]
    command = [*pip, "install", "--dry-run", "--quiet", "--report", "-", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    report = json.loads(done.stdout)
    return {item["metadata"]["name"]: item["metadata"]["version"] for item in report["install"]}


def main() -> int:
    """Ask pip, warn, and ask whoever sits there."""
    plan = packages([sys.executable, "-m", "pip"])
    if "torch" not in plan:
        return 0
    if not any(name.startswith("nvidia-") for name in plan):
        print(f"torch {plan['torch']}: a CPU build, about {CPU_MB} MB.")
        return 0
    print(
        f"torch {plan['torch']} would come as a CUDA build: about {CUDA_GB} GB to download.\n"
        "For the CPU build (about 200 MB) use: make demo TORCH_INDEX=ADDRESS, with the address\n"
        "that PyTorch's install page gives for Linux, pip and CPU."
    )
    if os.environ.get("YES") == "1":
        return 0
    if not sys.stdin.isatty():
        print("Nothing downloaded. Say YES=1 to take the CUDA build.")
        return 3
    return 0 if input("Download it all the same? [y/N] ").strip().lower() == "y" else 3


if __name__ == "__main__":
    sys.exit(main())
