"""``specops logs`` and ``diagnose``: files here, and a server's log on its host."""

from __future__ import annotations

from tests.functional.cli.conftest import Command

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
