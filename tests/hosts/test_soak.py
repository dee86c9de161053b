"""Half an hour with a host whose link comes and goes: nothing grows that the console holds."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import scale
from tests.functional.console.terminal import Terminal
from tests.proxy import Proxy
from tests.rig.sshd import LoopbackSshd

ROOT = Path(__file__).parents[2]
PROGRAM = ["-m", "tests.hosts.soak_app"]
FULL_S = 30 * 60
PATIENCE_S = 150.0
"""Longer than the longest pause between two attempts to connect."""
WALK = ("2", "j", "\x1b", "l", "\x1b", "4", "j", "a", "1", "?", "\x1b", "G", "k", "r")
LINE = "[2026-11-29 05:58:14 TP0] Decode batch. #running-req: 8, gen throughput (token/s): 812\n"


@dataclass
class Soak:
    """The console in a terminal, and what it says that it holds."""

    terminal: Terminal
    file: Path
    log: Path
    samples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def now(self) -> dict[str, Any]:
        """What it holds now."""
        told: dict[str, Any] = json.loads(self.file.read_text()) if self.file.exists() else {}
        return told

    async def until(self, true: Callable[[dict[str, Any]], bool], what: str) -> None:
        """Until it is so; bounded. Whatever is drawn is taken off the terminal."""
        end = time.monotonic() + PATIENCE_S
        while not ((told := self.now) and true(told)):
            lost = time.monotonic() > end or self.terminal.process.poll() is not None
            assert not lost, f"never: {what}; {told} {self.terminal.seen[-800:]!r}"
            await self.pause(0.1)

    async def pause(self, seconds: float) -> None:
        """Let it go on."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            await asyncio.sleep(min(left, 0.05))
            self.terminal.read(0)
            self.terminal.seen = self.terminal.seen[-4000:]

    async def well(self, what: str) -> None:
        """Until both hosts are seen."""
        states = {"steady": "ok", "flap": "ok"}
        await self.until(lambda told: told["states"] == states, what)

    async def walk(self) -> None:
        """Through the screens and back, with the log following on the way."""
        for key in WALK:
            self.terminal.press(key.encode())
            with self.log.open("a") as log:
                log.write(LINE * 20)
            await self.pause(0.2)
        await self.until(lambda told: told["screens"] == 2, "back on the fleet")


async def _reset(proxy: Proxy, soak: Soak) -> None:
    before = proxy.connections
    proxy.reset_all()
    await soak.until(lambda _: proxy.connections > before, "connected again")


async def _close(proxy: Proxy, soak: Soak) -> None:
    before = proxy.connections
    proxy.close_all()
    await soak.until(lambda _: proxy.connections > before, "connected again")


async def _half_open(proxy: Proxy, soak: Soak) -> None:
    before = proxy.connections
    proxy.half_open()
    await soak.until(lambda told: told["states"]["flap"] != "ok", "the loss is seen")
    await soak.until(lambda _: proxy.connections > before, "connected again")


async def _refuse(proxy: Proxy, soak: Soak) -> None:
    await proxy.refuse()
    proxy.reset_all()
    await soak.until(lambda told: told["states"]["flap"] != "ok", "the refusal is seen")
    await proxy.listen()


async def _stall(proxy: Proxy, soak: Soak) -> None:
    proxy.both(stalled=True)
    await soak.until(lambda told: told["states"]["flap"] != "ok", "the stall is seen")
    proxy.both(stalled=False)


FAULTS = (_reset, _close, _half_open, _refuse, _stall)


@pytest.fixture
async def link(loopback_sshd: LoopbackSshd) -> AsyncIterator[Proxy]:
    """The link that flaps."""
    async with Proxy(loopback_sshd.address, loopback_sshd.port) as proxy:
        yield proxy


@pytest.fixture
async def soak(link: Proxy, loopback_sshd: LoopbackSshd, tmp_path: Path) -> AsyncIterator[Soak]:
    """A console over the same sshd twice: straight, and behind the link."""
    known, log = tmp_path / "known", tmp_path / "server.log"
    log.write_text(LINE)
    lines, hosts = [], ["hosts:"]
    for name, port in (("steady", loopback_sshd.port), ("flap", link.port)):
        lines.append(loopback_sshd.host_key.known_hosts_line("127.0.0.1", port))
        hosts.append(
            f"  {name}: {{address: 127.0.0.1, port: {port}, user: {loopback_sshd.user}, "
            f"python: {sys.executable}, known_hosts: {known}, "
            f"identity_files: [{loopback_sshd.key.path}]}}"
        )
    known.write_text("".join(line if line.endswith("\n") else line + "\n" for line in lines))
    hosts += ["servers:", f"  k25: {{host: flap, engine: sglang, model: /m, port: 1, log: {log}}}"]
    (tmp_path / "hosts.yaml").write_text("\n".join(hosts) + "\n")
    env = {
        "SOAK": str(tmp_path / "held.json"), "HOME": str(tmp_path), "PYTHONPATH": str(ROOT),
        "SPECOPS_STATE_DIR": str(tmp_path), "XDG_STATE_HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path), "SSH_AUTH_SOCK": "",
    }  # fmt: skip
    terminal = Terminal([*PROGRAM, "console", "--hosts", str(tmp_path / "hosts.yaml")], env)
    yield Soak(terminal, tmp_path / "held.json", log)
    terminal.close()


@pytest.mark.long
@pytest.mark.timeout(FULL_S + 900)
async def test_nothing_grows_while_a_host_comes_and_goes(soak: Soak, link: Proxy) -> None:
    """Every fault in turn, every screen between two faults; compared are times when all is well."""
    seconds = scale.count(FULL_S)
    await soak.well("both hosts are seen")
    begun, flaps = time.monotonic(), 0
    while time.monotonic() - begun < seconds or flaps < 2 * len(FAULTS):
        await FAULTS[flaps % len(FAULTS)](link, soak)
        await soak.walk()
        await soak.well("well again")
        await soak.pause(1.5)
        soak.samples.append(soak.now)
        flaps += 1
    early, late = _thirds(soak.samples)
    figures = {
        name: tuple(statistics.median(told[name] for told in part) for part in (early, late))
        for name in ("rss_mb", "fds", "tasks", "threads")
    }
    said = ", ".join(f"{name} {a:.0f} then {b:.0f}" for name, (a, b) in figures.items())
    load = os.getloadavg()[0]
    print(f"\nfigures: {flaps} flaps in {time.monotonic() - begun:.0f} s, {said}, load {load:.1f}")
    assert figures["fds"][1] <= figures["fds"][0] + 1, said
    assert figures["tasks"][1] <= figures["tasks"][0] + 2, said
    assert figures["threads"][1] <= figures["threads"][0] + 2, said
    # A short run still fills caches; in half an hour they are full long before its second third.
    assert figures["rss_mb"][1] <= figures["rss_mb"][0] * (1.03 if scale.SHARE >= 1 else 1.15), said
    soak.terminal.press(b"q")
    assert soak.terminal.wait() == 0


def _thirds(samples: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The second and the last third."""
    part = len(samples) // 3
    return samples[part : 2 * part], samples[-part:]
