"""How fast a log is diagnosed, beside what grep takes to read it: ``make bench-diagnose``.

Prints CPU seconds and ratios; nothing is asserted, the machine decides the figures.
"""

from __future__ import annotations

import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from console.diagnosis import classify_line, diagnose
from tests.unit.diagnosis.cases import cases
from tests.unit.diagnosis.hostile import HOSTILE

SIZE = 300_000_000
DENSE = 12_000_000
BLOCK = 1 << 20


def cpu(work: Callable[[], object]) -> tuple[float, object]:
    """CPU seconds of this process and its ended children, and what the work gave."""

    def used() -> float:
        return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])

    begun = used()
    result = work()
    return used() - begun, result


def blocks(path: Path) -> Iterator[bytes]:
    """A file in blocks, as it would come from a host."""
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            yield block


def big_log(path: Path, middle: bytes) -> None:
    """A healthy run, ``middle`` over and over, and one crash at the end."""
    by_id = {case.id: case.log for case in cases("sglang-0.5.12-h200")}
    with path.open("wb") as file:
        file.write(by_id["healthy_eagle3"])
        for _ in range(SIZE // len(middle)):
            file.write(middle)
        file.write(b"".join(by_id["ctx_mismatch"].splitlines(keepends=True)[72:]))


def compare(name: str, path: Path) -> None:
    """One file: diagnose beside grep, and lnav where it is installed."""
    took, found = cpu(lambda: diagnose(blocks(path)))
    category = getattr(found, "category", "")
    rate = path.stat().st_size / 1e6 / took
    print(f"{name}: {rate:.0f} MB/s, {took:.2f} s CPU, {category}")
    tools = {"grep -c Error": ["grep", "-c", "Error", str(path)]}
    if shutil.which("lnav"):
        tools["lnav -n"] = ["lnav", "-n", "-c", ":filter-in Error", str(path)]
    for tool, argv in tools.items():
        other, _ = cpu(lambda argv=argv: subprocess.run(argv, capture_output=True, check=False))  # type: ignore[misc]
        print(f"  {took / max(other, 1e-3):.1f} times {tool} ({other:.2f} s)")


def main() -> int:
    """All figures, one per line."""
    healthy = next(c.log for c in cases("sglang-0.5.12-h200") if c.id == "healthy_eagle3")
    serving = b"".join(healthy.splitlines(keepends=True)[126:150])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        for name, middle in (("healthy starts", healthy), ("healthy serving", serving)):
            big_log(path, middle)
            compare(f"{name}, {SIZE / 1e6:.0f} MB, crash at the end", path)
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    rates = {}
    for case in cases("reports"):
        data = case.log * max(1, DENSE // len(case.log) // 8)
        rates[case.id] = len(data) / 1e6 / cpu(lambda data=data: diagnose(data))[0]  # type: ignore[misc]
    worst = min(rates, key=lambda name: rates[name])
    print(f"densest error case: {worst} {rates[worst]:.1f} MB/s of {len(rates)}")
    grows = [
        cpu(lambda d=data: diagnose(d * 4))[0] / max(cpu(lambda d=data: diagnose(d))[0], 1e-3)  # type: ignore[misc]
        for data in HOSTILE
    ]
    print(f"hostile bytes, four times as many: at most {max(grows):.1f} times the CPU")
    lines = serving.decode().split("\n") * 4000
    took, _ = cpu(lambda: [classify_line(line) for line in lines])
    print(f"classify_line: {len(lines) / took:.0f} serving lines/s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
