"""``specops bench`` against a server that streams, and against one that does not answer."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO

import pytest

from tests.functional.cli.conftest import Command, free_port
from tests.functional.cli.test_serving import state, until
from tests.rig.kept import ROOT

METRICS = "sglang:spec_accept_length 2.5\nsglang:generation_tokens_total 100\n"


class Streams(BaseHTTPRequestHandler):
    """Two chunks of three tokens each, as a server with speculation streams them."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        return

    def do_GET(self) -> None:
        self._say(200 if self.path == "/metrics" else 404, METRICS)

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != "Bearer key-for-the-bench":
            self._say(401, "no key")
            return
        assert asked["stream"]
        self.send_response(200)
        self.end_headers()
        for text in ("one two three", " four five six"):
            self._event({"choices": [{"text": text}]})
            time.sleep(0.01)
        self._event({"choices": [], "usage": {"completion_tokens": 6}})
        self.wfile.write(b"data: [DONE]\n\n")

    def _event(self, value: object) -> None:
        self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


@pytest.fixture
def port() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Streams)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def configured(specops: Command, port: int) -> None:
    specops.write(
        "hosts:\n  here: {transport: local}\nservers:\n"
        f"  one: {{host: here, engine: sglang, model: /m, port: {port},\n"
        "        args: {api-key: 'secret:BENCH_KEY'}}\n"
    )


def test_a_server_is_measured_and_the_figures_kept(specops: Command, port: int) -> None:
    configured(specops, port)
    specops.env["BENCH_KEY"] = "key-for-the-bench"
    ran = specops("bench", "one", "--concurrency", "1,3", "--requests", "2", "--json")
    assert ran.code == 0, ran.err
    one, three = ran.json["levels"]
    assert (one["concurrency"], one["requests"], one["tokens"]) == (1, 2, 12)
    assert (three["concurrency"], three["requests"], three["tokens"]) == (3, 6, 36)
    assert one["failed"] == three["failed"] == 0
    assert one["accept_length"] == 2.5
    assert 0 < one["itl_s"]["p50"] < one["seconds"]
    assert set(one["ttft_s"]) == {"p50", "p90", "p99"}
    kept = (specops.folder / "operator" / "specops" / "bench" / "here.jsonl").read_text()
    assert json.loads(kept)["levels"] == ran.json["levels"]
    assert "key-for-the-bench" not in ran.out + kept
    assert "ACCEPT" in specops("bench", "one", "--concurrency", "1", "--requests", "1").out


def test_a_refused_key_is_said(specops: Command, port: int) -> None:
    configured(specops, port)
    missing = specops("bench", "one", "--json")
    assert missing.code == 2
    assert "BENCH_KEY" in missing.json["error"]["message"]
    specops.env["BENCH_KEY"] = "another-key"
    wrong = specops("bench", "one", "--json")
    assert wrong.code == 6
    assert "HTTP 401" in wrong.json["error"]["message"]


def test_a_server_that_is_not_there(specops: Command) -> None:
    configured(specops, free_port())
    specops.env["BENCH_KEY"] = "key-for-the-bench"
    stopped = specops("bench", "one", "--json")
    assert stopped.code == 6
    assert stopped.json["error"]["message"] == "it is stopped"
    assert stopped.json["error"]["hint"] == "specops launch one"
    assert specops("bench", "one", "--against", "eagle3-1step", "--json").code == 2
    assert specops("bench", "one", "--concurrency", "1,x", "--json").code == 2


@pytest.mark.server
def test_two_presets_in_alternation(bundled: Command) -> None:
    assert bundled("launch", "one", "--yes", "--wait", "--json").code == 0
    against = ("bench", "one", "--against", "eagle3-1step", "--rounds", "2", "--tokens", "8")
    short = ("--concurrency", "1", "--requests", "1", "--json")
    assert bundled(*against, *short).code == 4  # it relaunches, so it asks
    ran = bundled(*against, *short, "--yes", bound_s=400)  # five relaunches
    assert ran.code == 0, ran.err
    (ratio,) = ran.json["ratios"]
    assert ratio["pairs"] == 2
    assert ratio["low"] <= ratio["mean"] <= ratio["high"]
    runs = bundled("runs", "--json").json["hosts"][0]["runs"]
    presets = [run["speculative"] for run in runs]
    assert presets == ["eagle3-3step", *["eagle3-1step", "eagle3-3step"] * 2, "eagle3-3step"]
    assert runs[0]["running"]  # ends with what ran before


@pytest.mark.server
def test_a_sweep_killed_goes_on_and_a_preset_that_cannot_serve_is_passed_over(
    bundled: Command,
) -> None:
    saved = bundled("presets", "save", "half", "--kind", "speculative", "--from", "eagle3-tree",
                    "--set", "speculative-num-steps", "--description", "no steps")  # fmt: skip
    assert saved.code == 0, saved.err
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    words = ("bench", "one", "--sweep", "eagle3-1step,eagle3-2step,half", "--rounds", "2",
             "--concurrency", "1", "--requests", "1", "--tokens", "8", "--yes")  # fmt: skip
    folder = bundled.folder / "operator" / "specops" / "bench"

    def lines() -> list[dict[str, object]]:
        (path,) = (folder / "sweeps").glob("one-*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]

    console = bundled.start(*words)
    until(lambda: (folder / "here.jsonl").exists() or console.poll() is not None, 120)
    until(lambda: len(lines()) > 1 or console.poll() is not None, 120)
    console.kill()
    console.communicate()
    already = lines()

    ran = bundled(*words, "--json", bound_s=400)
    assert ran.code == 6, ran.err  # one of the presets could not be served
    assert "going on with one-" in ran.err
    assert [row["preset"] for row in ran.json["failed"]] == ["half"]
    rows = {row["preset"]: row for row in ran.json["rows"]}
    assert (rows["eagle3-1step"]["rounds"], rows["eagle3-2step"]["rounds"]) == (2, 2)
    assert rows["half"]["rounds"] == 0
    assert rows["eagle3-2step"]["ratio"]["pairs"] == 2
    done = [(line["round"], line["preset"]) for line in lines() if "tokens_per_s" in line]
    assert len(done) == len(set(done)) == 4  # nothing was measured twice
    assert lines()[: len(already)] == already
    assert lines()[-1] == {"end": True}
    kept = [json.loads(line) for line in (folder / "here.jsonl").read_text().splitlines()]
    assert {row["sweep"] for row in kept} == {ran.json["sweep"]}
    assert bundled("status", "--json").json["hosts"][0]["servers"][0]["preset"] == "eagle3-3step"


class Told:
    """What a command says, as it comes: on stderr, and where it stands still (see cut.py)."""

    def __init__(self, console: subprocess.Popen[str]) -> None:
        self.console = console
        self.lines: list[str] = []
        pipes = (console.stdout, console.stderr)
        self._readers = [threading.Thread(target=self._read, args=(pipe,)) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    def _read(self, pipe: IO[str]) -> None:
        with pipe:
            for line in pipe:
                self.lines.append(line.rstrip())

    def until(self, word: str, after: int = 0) -> int:
        """Wait for a line that holds the word; returns the number of the next."""

        def found() -> bool:
            return any(word in line for line in self.lines[after:])

        until(lambda: found() or self.console.poll() is not None, 120)
        if not found():
            self.end()
        assert found(), (word, self.lines)
        return next(n for n, line in enumerate(self.lines) if n >= after and word in line) + 1

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.console.send_signal(signal.SIGINT)

    def end(self) -> int:
        """Its exit code; all that it said is here then."""
        code = self.console.wait(120)
        for reader in self._readers:
            reader.join()
        return code


def comparing(bundled: Command, requests: int, still: str = "99") -> Told:
    """A comparison under way, which stands still after these steps of its plans."""
    words = ("bench", "one", "--against", "eagle3-1step", "--rounds", "2", "--tokens", "64",
             "--concurrency", "1", "--requests", str(requests), "--yes")  # fmt: skip
    argv = [sys.executable, "-m", "tests.functional.cli.cut", still, "after", *words]
    return Told(
        subprocess.Popen(
            [*argv, "--hosts", str(bundled.hosts)],
            env=bundled.env,
            cwd=ROOT,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    )


DRAIN, LAUNCH = 1, 7
"""Steps of a relaunch."""


@pytest.mark.server
def test_an_interrupted_comparison_puts_back_what_ran_before(bundled: Command) -> None:
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    told = comparing(bundled, 1000)
    told.until("requests done, ")  # a word every few seconds
    told.interrupt()
    told.until("interrupted: it runs with eagle3-3step, as before")
    assert told.end() == 130
    first = state(bundled)
    assert (first["phase"], first["preset"]) == ("ready", "eagle3-3step")

    told = comparing(bundled, 1, f"1:{DRAIN}")  # in the relaunch with the other preset
    at = told.until("here")
    told.interrupt()
    at = told.until("interrupted: putting eagle3-3step back", at)
    told.until("eagle3-3step runs again", at)
    assert told.end() == 130
    after = state(bundled)
    assert (after["phase"], after["preset"]) == ("ready", "eagle3-3step")
    assert after["pid"] != first["pid"]


@pytest.mark.server
def test_a_second_interruption_says_how_it_was_left_and_what_mends_it(bundled: Command) -> None:
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    told = comparing(bundled, 1, f"1:{DRAIN},2:{LAUNCH - 1}")  # stopped, not started again
    at = told.until("here")
    told.interrupt()
    at = told.until("interrupted: putting eagle3-3step back", at)
    told.until("here", at)
    told.interrupt()
    told.until("one: left stopped; ", at)
    assert told.end() == 130
    assert state(bundled)["phase"] == "stopped"
    (said,) = [line for line in told.lines if line.startswith("one: left ")]
    mend = said.partition("specops ")[2].partition(" finishes")[0].split()
    assert mend[0] == "resume"
    ran = bundled(*mend, "--yes")
    assert ran.code == 0, ran.out + ran.err
    after = state(bundled)
    assert (after["phase"], after["preset"]) == ("ready", "eagle3-3step")
