"""However a command is started and read: one line, one document, the right exit code."""

from __future__ import annotations

import json
import os
import shlex
import subprocess

import pytest

from tests.functional.cli.conftest import Command, Ran


def shell(command: Command, words: str, redirect: str, **env: str) -> Ran:
    """The command through a shell, which alone can close a stream."""
    line = f"{shlex.join(command.argv(*shlex.split(words)))} {redirect}"
    done = subprocess.run(
        ["bash", "-c", line], env={**command.env, **env}, cwd=command.folder,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return Ran(done.returncode, done.stdout, done.stderr)


GONE = "| true; exit ${PIPESTATUS[0]}"


@pytest.mark.parametrize(
    ("words", "redirect", "code"),
    [
        ("presets list", GONE, 0),
        ("status nosuch --json", GONE, 2),
        ("presets list", ">&-", 0),
        ("status nosuch --json", ">&-", 2),
        ("status nosuch", "2>&-", 2),
        ("presets show nosuch", "<&- >&- 2>&-", 2),
        ("presets list", ">/dev/full", 6),
        ("presets list --json", ">/dev/full", 6),
    ],
)
def test_a_lost_stream_costs_neither_the_exit_code_nor_a_traceback(
    specops: Command, words: str, redirect: str, code: int
) -> None:
    ran = shell(specops, words, redirect)
    assert ran.code == code, ran.err
    assert len(ran.err.splitlines()) <= 1, ran.err


def test_following_ends_with_its_reader(specops: Command) -> None:
    log = specops.folder / "log"
    log.write_text("one\n" * 5000)
    ran = shell(specops, f"logs {log} -f -n 5000", "| head -1")
    assert ran.out == "one\n"
    assert ran.err == ""


HOSTILE = [
    "",
    "x" * 5000,
    "\x1b[31mred\x07\r\n",
    "\u202eabc",
    os.fsdecode(b"\xff\xfe"),
    "-",
    "日本",
]


@pytest.mark.parametrize("word", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_hostile_argument_is_one_inert_line_and_one_document(
    specops: Command, word: str, encoding: str
) -> None:
    specops.env["PYTHONIOENCODING"] = encoding
    ran = specops("status", "--json", "--", word)
    assert ran.code == 2
    assert ran.json["error"]["code"] == "usage"
    assert len(ran.err.splitlines()) == 1
    assert len(ran.err) < 3000
    assert ran.err.removesuffix("\n").isprintable()


def test_a_place_that_cannot_be_written_is_one_line(specops: Command) -> None:
    specops.env["XDG_CONFIG_HOME"] = "/proc/none"
    ran = specops("config", "init")
    assert ran.code == 6
    assert "/proc/none" in ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_name_that_fits_no_zombie_is_a_slip(specops: Command) -> None:
    ran = specops("kill-zombies", "--named", "nosuch", "--quick", "--yes", "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["error"]["place"] == "--named"
