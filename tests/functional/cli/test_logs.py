"""``specops logs`` and ``diagnose``: files here, and a server's log on its host."""

from __future__ import annotations

import asyncio
import bz2
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest

from console.cli.logs import _found
from tests.functional.cli.conftest import Command
from tests.unit.diagnosis.cases import cases

LOG = (
    "[2026-11-29 14:00:00] server_args=ServerArgs(api_key='geheim-1234')\n"
    "[2026-11-29 14:00:01 TP0] Load weight begin. avail mem=139.00 GB\n"
    "\x1b]52;c;eA==\x07plain line\n"
    "Traceback (most recent call last):\n"
    '  File "/x/sglang/srt/configs/model_config.py", line 541, in _derive\n'
    "    raise ValueError(msg)\n"
    "ValueError: Target model's context_length (262144) is greater than the derived one (131072).\n"
)


def test_a_servers_log_is_read_on_its_host(specops: Command) -> None:
    log = specops.folder / "one.log"
    log.write_text(LOG)
    specops.write("hosts:\n  here: {transport: local}\nservers:\n"
                  f"  one: {{host: here, engine: sglang, model: /m, log: {log}}}\n")  # fmt: skip
    shown = specops("logs", "one", "-n", "5")
    assert shown.code == 0, shown.err
    assert shown.out.splitlines()[-1].startswith("ValueError: Target model")
    assert len(shown.out.splitlines()) == 5
    found = specops("logs", "one", "--grep", "Load weight|plain", "--json").json
    assert len(found["lines"]) == 2
    whole = specops("logs", "one", "-n", "100")
    assert "\x1b" not in whole.out
    assert "geheim-1234" not in whole.out
    judged = specops("diagnose", "one", "--json")
    assert judged.json["root"]["type"] == "ValueError"
    assert judged.json["root"]["line"] == 541


def test_a_file_here_needs_no_host(specops: Command) -> None:
    log = specops.folder / "one.log"
    log.write_text(LOG)
    specops.write("hosts: {}\n")
    errors = specops("logs", "./one.log", "--errors")
    assert errors.code == 0
    assert "ValueError: Target" in errors.out
    assert "plain line" not in errors.out
    assert specops("diagnose", "./one.log", "--json").json["root"]["type"] == "ValueError"


def test_a_log_is_read_out_of_whatever_holds_it(specops: Command) -> None:
    specops.write("hosts: {}\n")
    data = LOG.encode()
    for name, packed in (("gz", gzip.compress(data * 40)), ("bz2", bz2.compress(data)),
                         ("xz", lzma.compress(data)), ("cut.gz", gzip.compress(data)[:-9]),
                         ("hole", b"\0" * 9000 + data)):  # fmt: skip
        (specops.folder / name).write_bytes(packed)
        ran = specops("diagnose", f"./{name}", "--json")
        assert ran.json["root"]["type"] == "ValueError", name
    (specops.folder / "log").write_text(LOG)
    os.mkfifo(specops.folder / "pipe")
    with subprocess.Popen(["cp", "log", "pipe"], cwd=specops.folder):
        ran = specops("diagnose", "./pipe", "--json")
        assert ran.json["root"]["type"] == "ValueError"


def test_a_message_without_end_is_cut_with_a_mark(specops: Command) -> None:
    specops.write("hosts: {}\n")
    filler = "y" * 3_000_000
    log = LOG.splitlines(keepends=True)[:-1]
    (specops.folder / "long").write_text("".join(log) + f"ValueError: bad {filler}\n")
    ran = specops("diagnose", "./long")
    assert ran.code == 1
    assert "bad yyy" in ran.out
    assert " characters]" in ran.out
    assert len(ran.out) < 9000
    shown = specops("logs", "./long", "-n", "1")
    assert " bytes]" in shown.out
    (specops.folder / "many").write_text("".join(log) + "ValueError: bad\n" + "  more\n" * 40)
    assert "lines left out" in specops("diagnose", "./many").out


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (gzip.compress(b""), "empty"),
        (Path(sys.executable).read_bytes()[:9000], "ELF"),
        (gzip.compress(Path(sys.executable).read_bytes()[:9000]), "ELF"),
        (bytes(range(256)) * 64, "binary"),
        ("[2026] läuft\n".encode("utf-16"), "UTF-16"),
        (b"\x1f\x8bnothing", "damaged"),
        (b"\x28\xb5\x2f\xfd\x04\x00", "zstdcat"),
        (None, "directory"),
    ],
    ids=["empty", "gzip-empty", "elf", "gzip-elf", "binary", "utf-16", "damaged", "zstd", "folder"],
)
def test_what_is_no_log_is_never_called_fine(
    specops: Command, data: bytes | None, said: str
) -> None:
    specops.write("hosts: {}\n")
    path = specops.folder / "thing"
    path.mkdir() if data is None else path.write_bytes(data)
    ran = specops("diagnose", "./thing")
    assert ran.code == 2
    assert said in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not ran.out


def test_bad_questions_are_one_line(specops: Command) -> None:
    for words in (("./gone.log",), ("nobody",), ("./hosts.yaml", "--grep", "(")):
        ran = specops("logs", *words)
        assert ran.code == 2, words
        assert len(ran.err.strip().splitlines()) == 1


def test_several_logs_of_a_server_are_shown_by_time(specops: Command) -> None:
    folder = specops.folder / "ranks"
    folder.mkdir()
    for rank in range(3):
        rows = [f"[2026-11-29 14:{n:02}:0{rank}] rank {rank} line {n}\n" for n in range(40)]
        if rank == 1:
            rows[20:21] = LOG.splitlines(keepends=True)[3:]
        (folder / f"rank{rank}.log").write_text("".join(rows))
    logs = f"['{specops.folder}/none-{{run}}.log', '{folder}/rank*.log']"
    specops.write("hosts:\n  here: {transport: local}\nservers:\n"
                  f"  one: {{host: here, model: /m, port: 1, log: {logs}}}\n")  # fmt: skip
    shown = specops("logs", "one", "-n", "4")
    assert shown.code == 0, shown.err
    assert [row[:8] for row in shown.out.splitlines()] == [
        "rank2 | ", "rank0 | ", "rank1 | ", "rank2 | "
    ]  # fmt: skip
    errors = specops("logs", "one", "--errors").out
    assert "rank1 | ValueError: Target model" in errors
    hits = specops("logs", "one", "--grep", "line 7$").out.splitlines()
    assert [row.split()[-4:] for row in hits] == [["rank", str(n), "line", "7"] for n in range(3)]
    assert specops("diagnose", "one", "--json").json["root"]["type"] == "ValueError"


def test_errors_and_the_newest_matches_are_searched_on_the_host(specops: Command) -> None:
    log = specops.folder / "one.log"
    healthy = next(c.log for c in cases("sglang-0.5.12-h200") if c.id == "healthy_eagle3")
    crash = next(c.log for c in cases("reports") if c.id == "sg-4503")
    log.write_bytes(healthy)
    specops.write("hosts:\n  here: {transport: local}\nservers:\n"
                  f"  one: {{host: here, engine: sglang, model: /m, log: {log}}}\n")  # fmt: skip
    assert specops("logs", "one", "--errors").out == ""
    log.write_bytes(healthy + b"".join(b"batch %d\n" % n for n in range(12_000)) + crash)
    here = specops("logs", str(log), "--errors").out
    assert "OutOfMemoryError" in here
    assert specops("logs", "one", "--errors").out == here
    few = specops("logs", "one", "--grep", "^batch", "-n", "3")
    assert few.out.split() == ["batch", "11997", "batch", "11998", "batch", "11999"]
    assert specops("logs", str(log), "--grep", "^batch", "-n", "3").out == few.out
    many = specops("logs", "one", "--grep", "^batch")
    assert many.out.splitlines()[-1] == "batch 9999"
    assert "only the first 10000 lines" in many.err


async def test_a_followed_file_is_searched_as_it_grows_and_when_it_is_replaced(
    tmp_path: Path,
) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"old hit\nhit 1\nmiss\n")
    rows = _found(None, log, 2, True, False, "hit")
    async with asyncio.timeout(60):
        assert (await anext(rows))[1] == b"hit 1"
        with log.open("ab") as out:
            out.write(b"miss\nhit 2\n")
        assert (await anext(rows))[1] == b"hit 2"
        log.rename(tmp_path / "a.log.1")
        log.write_bytes(b"hit 3\n")
        assert (await anext(rows))[1] == b"hit 3"
