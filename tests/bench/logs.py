"""The log view against its bounds: ``make bench-logs [PART=follow|crash]``.

One million lines, ratios, the load printed.
Append ≤ 2 times a bare line-API widget; RSS ≤ 250 MB; jump ≤ 50 ms; first hit or progress ≤ 50 ms;
count by substring ≤ 0.5 s and by regular expression ≤ 8 s of CPU without holding the event loop
> 16 ms at p99.9. Then the real console over a log that pours in and over starts that crash, see
``tests.bench.logs_live``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from textual.app import App, ComposeResult
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.logs.search import Matcher
from console.logs.store import LogStore
from tests.bench import logs_live
from widgets.log_view import LogView

LINES = int(os.environ.get("BENCH_LINES", "1000000"))
BATCH = 500
SEARCHES = ("something that", "accept len", "/val.eerror.*fifty/", "/accept.*7[0-9]9/")


def batch_of(batch: int) -> bytes:
    """500 different lines, and an error in every hundredth batch."""
    rows = [
        b"[2026-11-29 05:58:%02d TP%d] Decode batch. #running-req: %d, #token: %d, token usage: "
        b"0.12, accept len: 2.41, cuda graph: True, gen throughput (token/s): %d.33, "
        b"#queue-req: 0\n" % (n % 60, n % 8, n % 13, batch * BATCH + n, 700 + n % 200)
        for n in range(BATCH)
    ]
    if batch % 100 == 50:
        rows[7] = b"ValueError: something that happens every fifty thousand lines\n"
    return b"".join(rows)


class BareView(ScrollView):
    """The least: a list of text and the line API."""

    def __init__(self) -> None:
        super().__init__()
        self.lines_kept: list[str] = []

    def add(self, data: bytes) -> None:
        self.lines_kept.extend(data.decode("utf-8", "replace").split("\n")[:-1])
        self.virtual_size = Size(self.size.width, len(self.lines_kept))
        self.scroll_end(animate=False)

    def render_line(self, y: int) -> Strip:
        from rich.segment import Segment

        at = y + int(self.scroll_offset.y)
        text = self.lines_kept[at] if at < len(self.lines_kept) else ""
        return Strip([Segment(text)]).crop_extend(0, self.size.width, None)


class Bench(App[None]):
    """One widget on a screen."""

    def __init__(self, widget: BareView | LogView) -> None:
        super().__init__()
        self.shown = widget

    def compose(self) -> ComposeResult:
        yield self.shown


async def append(kind: str) -> None:
    """CPU of taking in all lines in batches, each drawn."""
    widget: BareView | LogView = BareView() if kind == "bare" else LogView(LogStore())
    widget.styles.height = "1fr"
    app = Bench(widget)
    data = [batch_of(batch) for batch in range(LINES // BATCH)]
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        begun = time.process_time()
        for batch in data:
            if isinstance(widget, BareView):
                widget.add(batch)
            else:
                widget.store.append(batch)
                widget.changed()
            await asyncio.sleep(0)
        print(f"{time.process_time() - begun:.2f}")


async def use() -> None:
    """Memory, jumps, searches and what they do to the event loop."""
    widget = LogView(LogStore())
    widget.styles.height = "1fr"
    app = Bench(widget)
    base = _rss()
    async with app.run_test(size=(120, 40)) as pilot:
        for batch in range(LINES // BATCH):
            widget.store.append(batch_of(batch))
        widget.changed()
        await pilot.pause()
        gc.collect()
        gc.freeze()  # as the console does
        print(f"RSS                  {_rss():.0f} MB with {len(widget.store):,} lines of "
              f"{widget.store.received_bytes / len(widget.store):.0f} B (bound 250; "
              f"{base:.0f} before)")  # fmt: skip
        _jumps(widget)
        spent = {text: await _search(widget, text) for text in SEARCHES}
        _peers(spent)


def _jumps(widget: LogView) -> None:
    worst = 0.0
    for jump in (
        widget.top, lambda: widget.next_error(1), lambda: widget.next_error(-1), widget.bottom,
        lambda: widget.go_to(LINES // 2), lambda: widget.page(-1), widget.toggle_wrap,
        lambda: widget.page(1), widget.toggle_wrap, widget.toggle_fold,
    ):  # fmt: skip
        begun = time.perf_counter()
        jump()
        for y in range(widget.size.height):
            widget.render_line(y)
        worst = max(worst, (time.perf_counter() - begun) * 1000)
    print(f"jump and draw        {worst:.1f} ms at worst (bound 50)")


async def _search(widget: LogView, text: str) -> float:
    """A whole search through the widget, with a clock running beside it; its CPU seconds."""
    late: list[float] = []
    held: list[float] = []

    async def clock() -> None:
        while True:
            begun, cpu = time.perf_counter(), time.process_time()
            await asyncio.sleep(0.001)
            held.append((time.process_time() - cpu) * 1000)
            late.append((time.perf_counter() - begun - 0.001) * 1000)

    ticking = asyncio.create_task(clock())
    begun, cpu = time.perf_counter(), time.process_time()
    widget.top()
    widget.find(Matcher(text))
    search = widget.search
    assert search is not None
    first = None
    while not search.done:
        await asyncio.sleep(0.001)
        if first is None and search.lines:
            first = (time.perf_counter() - begun) * 1000
    spent, took = time.process_time() - cpu, time.perf_counter() - begun
    ticking.cancel()
    late.sort()
    held.sort()
    shown = f"{first:.0f} ms" if first is not None else "at the end"
    budget = 8 if text.startswith("/") else 0.5
    print(f"count {text:<22} {len(search.lines):>9,} hits  {spent:.2f} s CPU (bound {budget}; "
          f"{took:.2f} s)  first hit {shown}  loop held p99.9 {held[int(len(held) * 0.999)]:.1f} "
          f"ms of CPU (bound 16), {late[int(len(late) * 0.999)]:.1f} ms of time; "
          f"load average {os.getloadavg()[0]:.2f}")  # fmt: skip
    return spent


def _rss() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


def _alone(what: str) -> str:
    argv = [sys.executable, "-m", "tests.bench.logs", what]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout


def _peers(ours: Mapping[str, float]) -> None:
    """What the tools of the trade take for the same, in CPU seconds and as our multiple of it."""
    with tempfile.NamedTemporaryFile(suffix=".log") as file:
        file.writelines(batch_of(batch) for batch in range(LINES // BATCH))
        file.flush()
        home = str(Path(file.name).parent)
        for argv, mine in (
            (["grep", "-ci", "something that"], ours["something that"]),
            (["grep", "-ci", "accept len"], ours["accept len"]),
            (["grep", "-ciE", "val.eerror.*fifty"], ours["/val.eerror.*fifty/"]),
            (["grep", "-ciE", "accept.*7[0-9]9"], ours["/accept.*7[0-9]9/"]),
            (["lnav", "-n", "-c", ":filter-in something that"], ours["something that"]),
            (["lnav", "-n", "-c", ":filter-in accept.*7[0-9]9"], ours["/accept.*7[0-9]9/"]),
        ):
            if shutil.which(argv[0]) is None:
                print(f"  {argv[0]}: not installed here (apt-get install {argv[0]})")
                continue
            begun = resource.getrusage(resource.RUSAGE_CHILDREN)
            # Not /dev/null: grep stops at the first hit when it sees that.
            env = {**os.environ, "HOME": home}
            subprocess.run([*argv, file.name], capture_output=True, check=False, env=env)
            ended = resource.getrusage(resource.RUSAGE_CHILDREN)
            took = ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime
            print(f"  {mine / max(took, 0.01):.1f} x {' '.join(argv)} ({took:.2f} s CPU)")


def main() -> None:
    """Everything, one line each."""
    if sys.argv[1:] in (["follow"], ["crash"]):
        logs_live.main(sys.argv[1])
        return
    if len(sys.argv) > 1:
        asyncio.run(use() if sys.argv[1] == "use" else append(sys.argv[1]))
        return
    print(f"load average {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores; {LINES:,} lines")
    bare = min(float(_alone("bare")) for _ in range(2))
    ours = min(float(_alone("ours")) for _ in range(2))
    print(f"append and draw      {ours / bare:.2f} x a bare line-API widget ({ours:.2f} s / "
          f"{bare:.2f} s CPU; bound 2)")  # fmt: skip
    print(_alone("use"), end="", flush=True)
    logs_live.main()


if __name__ == "__main__":
    main()
