"""The command itself: light to start, clear when it is used wrongly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from console.cli.root import COMMANDS
from tests.functional.cli.conftest import Command

HEAVY = ("textual", "asyncssh", "httpx", "torch", "pydantic", "console.watch.observe", "asyncio")


def test_help_imports_nothing_heavy_and_names_every_command() -> None:
    code = (
        "import sys\nfrom console.cli.root import run\nrun(['--help'])\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert all(f"\n  {name} " in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", [n for n in COMMANDS if n != "serve"])
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    from console.cli.root import run

    assert run([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert "Usage: specops" in text
    assert "--hosts FILE" in text or name in ("presets", "config")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["statsu"], 2, "status"),
        (["status", "nowhere"], 2, "here"),
        (["launch", "onee"], 2, "no server 'onee'"),
        (["status", "--bogus"], 2, "--bogus"),
        (["kill-zombies"], 4, "--yes"),
        (["kill-zombies", "nosuch"], 2, "no host 'nosuch'"),
        (["resume"], 2, "specops runs lists them"),
        (["undo"], 2, "specops runs lists them"),
        (["report"], 2, "specops runs lists them"),
        (["launch"], 2, "specops status lists them"),
        (["diagnose"], 2, "specops status lists them"),
        (["config", "validate", "a.yaml", "--hosts", "b.yaml"], 2, "name one"),
        (["console"], 2, "terminal"),
        (["watch", "--hosts", "missing.yaml", "x"], 2, "no such file"),
    ],
)
def test_wrong_use_is_one_line_with_its_exit_code(
    specops: Command, words: list[str], code: int, said: str
) -> None:
    ran = specops(*words)
    assert ran.code == code
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert ran.out == ""
    if words[0] not in ("console", "statsu") and "--bogus" not in words:
        document = specops(*words, "--json").json
        assert document["schema"] == 1
        assert set(document["error"]) == {"code", "message", "place", "hint"}


def test_a_broken_hosts_file_names_line_and_likely_word(specops: Command) -> None:
    specops.write("hosts:\n  here: {transprot: local}\n")
    ran = specops("status")
    assert ran.code == 2
    assert "hosts.yaml:2" in ran.err
    assert "did you mean 'transport'" in ran.err


def test_a_host_that_is_down_is_a_state_and_exit_3(specops: Command) -> None:
    specops.write(
        "hosts:\n  here: {transport: local}\n"
        "  gone: {address: 127.0.0.1, port: 1, connect_timeout: 2}\n"
    )
    ran = specops("status", "--json")
    assert ran.code == 3
    here, gone = ran.json["hosts"]
    assert here["state"] == "ok"
    assert here["cpu"]["memory_total_mib"] > 0
    assert gone["state"] == "unreachable"
    assert gone["cpu"] is None
    assert gone["error"]


def test_status_without_servers_finds_nothing_and_a_pipe_gets_plain_text(specops: Command) -> None:
    ran = specops("status")
    assert ran.code in (0, 1)  # this machine may have zombies that are not ours
    assert "here" in ran.out
    assert "\x1b" not in ran.out


def test_python_missing_on_a_host_is_said(specops: Command, tmp_path: Path) -> None:
    specops.write(f"hosts:\n  here: {{transport: local, python: {tmp_path}/nopython}}\n")
    ran = specops("status", "here")
    assert ran.code == 3
    assert "python" in ran.err
