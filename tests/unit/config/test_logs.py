"""``log:`` names one file, a pattern, or a list of both."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.config import load
from console.errors import ConfigError
from console.logs.follower import source_of
from console.remote import LogSource
from tests.functional.console.fake import run_of


@pytest.mark.parametrize(
    ("said", "source"),
    [
        ("/l/a.log", LogSource(path="/l/a.log")),
        ("[/l/a.log]", LogSource(path="/l/a.log")),
        ("[/l/a.log, /l/b.log]", LogSource(path="/l/a.log", also=("/l/b.log",))),
        ("/l/rank*.log", LogSource(also=("/l/rank*.log",))),
        ("[/l/rank*.log, /l/a.log]", LogSource(path="/l/a.log", also=("/l/rank*.log",))),
        ("['/l/a.log', '/l/{server}/{run}/*.log']", LogSource("/l/a.log", also=("/l/k/*/*.log",))),
    ],
)
def test_what_a_log_may_be(tmp_path: Path, said: str, source: LogSource) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(
        f"hosts: {{h: {{transport: local}}}}\nservers: {{k: {{host: h, model: /m, log: {said}}}}}\n"
    )
    server = load(path).server("k")
    assert source_of(server, None) == source


def test_a_runs_own_log_comes_first_and_fills_the_patterns(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(
        "hosts: {h: {transport: local}}\n"
        "servers: {k: {host: h, model: /m, log: ['/l/{run}.log', '/l/{run}/*.log']}}\n"
    )
    server = load(path).server("k")
    assert source_of(server, None) == LogSource(also=("/l/*/*.log",))
    run = run_of("k", "h", "3f2c")
    assert source_of(server, run) == LogSource(path=run.log, also=("/l/3f2c/*.log",))


@pytest.mark.parametrize("said", ["['']", "[/a, {b: c}]", "{a: b}"])
def test_what_it_may_not_be(tmp_path: Path, said: str) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(
        f"hosts: {{h: {{transport: local}}}}\nservers: {{k: {{host: h, model: /m, log: {said}}}}}\n"
    )
    with pytest.raises(ConfigError, match="log"):
        load(path)
