"""How a server starts, ends, crashes and is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from eagle3.weights import paths

from .live import CHAIN, PATIENCE, READY, Live, serving

pytestmark = pytest.mark.server
GONE = -signal.SIGKILL
"""How a launcher ends after a crash: by its own SIGKILL, status 137 for a shell."""


def short_draft(folder: Path) -> Path:
    """The shipped draft, made for half the target's context."""
    copy = folder / "draft"
    shutil.copytree(paths().draft, copy)
    config = json.loads((copy / "config.json").read_text())
    config["max_position_embeddings"] = 1024
    (copy / "config.json").write_text(json.dumps(config))
    return copy


def with_draft(draft: Path) -> list[str]:
    return [str(draft) if part == str(paths().draft) else part for part in CHAIN]


def rss_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie that nobody reaps counts)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while not gone(pid):
        assert time.monotonic() < deadline, f"{pid} still lives"
        time.sleep(0.02)


def markers(text: str) -> list[str]:
    """What a phase machine would see, in order."""
    wanted = (
        "server_args=", "Load weight begin.", "Load weight end.", "KV Cache is allocated.",
        "Memory pool end.", "max_total_num_tokens=", "Uvicorn running on", READY,
    )  # fmt: skip
    return [mark for line in text.splitlines() for mark in wanted if mark in line]


def test_start_order_health_order_and_cost(tmp_path: Path) -> None:
    with serving(tmp_path, *CHAIN, ready=False) as live:
        seen: list[int | None] = []
        while not seen or seen[-1] != 200:
            assert live.process.poll() is None, live.text()
            try:
                status: int | None = live.get("/health")[0]
            except OSError:
                status = None
            if not seen or seen[-1] != status:
                seen.append(status)
            time.sleep(0.01)
        assert seen in ([None, 503, 200], [None, 200])
        live.wait_for(READY)
        load = [
            "Load weight begin.",
            "Load weight end.",
            "KV Cache is allocated.",
            "Memory pool end.",
        ]
        assert markers(live.text()) == [
            "server_args=", *load, *load, "max_total_num_tokens=", "Uvicorn running on", READY,
        ]  # fmt: skip
        assert re.search(r"Load weight end\. .*type=LlamaForCausalLM,", live.text())
        assert re.search(r"Load weight end\. .*type=LlamaForCausalLMEagle3,", live.text())
        assert "Max running requests is reset to 48" in live.text()
        pids = (live.process.pid, live.scheduler())
        assert sum(map(rss_mib, pids)) <= 450
        # 3 s on a machine of its own; neighbours and cold caches stretch CPU time too.
        assert sum(map(cpu_seconds, pids)) <= 6
        assert live.end() == 0
        until_gone(pids[1])


def test_health_is_503_until_the_warmup_has_passed(tmp_path: Path) -> None:
    with serving(tmp_path, "--debug-hang-at", "warmup", ready=False) as live:
        live.wait_for("Uvicorn running on")
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                assert live.get("/health")[0] == 503
                break
            except OSError:
                assert time.monotonic() < deadline
        assert live.get("/health_generate")[0] == 503
        assert live.get("/v1/models")[0] == 200, "answers before the warmup, as SGLang's does"


@pytest.mark.parametrize("phase", ["load_target", "kv_draft"])
def test_it_can_be_made_to_hang(tmp_path: Path, phase: str) -> None:
    with serving(tmp_path, *CHAIN, "--debug-hang-at", phase, ready=False) as live:
        live.wait_for(f"Stopping for ever at {phase}")
        with pytest.raises(OSError, match="refused"):
            live.get("/health")
        scheduler = live.scheduler()
        live.process.kill()
        until_gone(scheduler)


def test_a_draft_with_too_short_a_context_fails_after_the_target(tmp_path: Path) -> None:
    draft = short_draft(tmp_path)
    with serving(tmp_path, *with_draft(draft), ready=False) as live:
        assert live.process.wait(PATIENCE) == GONE
        text = live.text()
    steps = [
        "Load weight end.",
        "Scheduler hit an exception: Traceback (most recent call last):",
        "ValueError: Warning: Target model's context_length (2048) is greater than the derived "
        "context_length (1024).",
        "Received sigquit from a child process. It usually means the child failed.",
    ]
    places = [text.find(step) for step in steps]
    assert -1 not in places, text
    assert places == sorted(places)
    assert text.count("Load weight begin.") == 1
    env = {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1"}
    with serving(tmp_path, *with_draft(draft), env=env) as live:
        assert "Target model's context_length (2048)" in live.text()
    with serving(tmp_path, *with_draft(draft), "--context-length", "1024") as live:
        assert live.end() == 0


def test_partial_speculative_flags_end_at_once_with_1(tmp_path: Path) -> None:
    partial = [*CHAIN[:4], "--speculative-eagle-topk", "4"]
    with serving(tmp_path, *partial, ready=False) as live:
        assert live.process.wait(PATIENCE) == 1
        assert "AssertionError" in live.text()
        assert "Load weight begin" not in live.text()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_a_scheduler_that_dies_takes_the_launcher_along(tmp_path: Path, number: int) -> None:
    with serving(tmp_path) as live:
        scheduler = live.scheduler()
        os.kill(scheduler, number)
        assert live.process.wait(PATIENCE) == GONE
        said = f"Subprocess scheduler_0 (pid={scheduler}) crashed with exit code -{int(number)}."
        assert said in live.text()
        assert "SIGQUIT received." in live.text()


def test_a_scheduler_killed_while_loading(tmp_path: Path) -> None:
    with serving(tmp_path, "--debug-hang-at", "load_target", ready=False) as live:
        live.wait_for("Stopping for ever")
        os.kill(live.scheduler(), signal.SIGKILL)
        assert live.process.wait(PATIENCE) == 1
        assert "scheduler died during initialization (exit code: -9)" in live.text()


def test_the_scheduler_dies_with_its_launcher(tmp_path: Path) -> None:
    with serving(tmp_path) as live:
        scheduler = live.scheduler()
        live.process.kill()
        live.process.wait(PATIENCE)
        until_gone(scheduler)


def test_an_orphan_by_request_keeps_its_memory_and_environment(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-parent-death-signal", env={"SPECOPS_RUN_ID": "r-test"}) as live:
        scheduler = live.scheduler()
        try:
            before = rss_mib(scheduler)
            live.process.kill()
            live.process.wait(PATIENCE)
            time.sleep(0.3)
            assert not gone(scheduler)
            assert rss_mib(scheduler) > before / 2
            assert b"SPECOPS_RUN_ID=r-test" in Path(f"/proc/{scheduler}/environ").read_bytes()
            assert Path(f"/proc/{scheduler}/cmdline").read_bytes().startswith(b"eagle3::scheduler")
        finally:
            os.kill(scheduler, signal.SIGKILL)
        until_gone(scheduler)


def test_a_taken_port_is_noticed_after_loading(tmp_path: Path) -> None:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen()
        with serving(tmp_path, port=sock.getsockname()[1], ready=False) as live:
            assert live.process.wait(PATIENCE) == 1
            assert "[Errno 98]" in live.text()
            assert "Load weight end." in live.text()


def ask_long(live: Live, results: list[int]) -> threading.Thread:
    def ask() -> None:
        body = {"prompt": "import os\n", "max_tokens": 400, "temperature": 1}
        try:
            results.append(live.post("/v1/completions", body)[0])
        except OSError:
            results.append(0)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def running(live: Live) -> int:
    load = json.loads(live.get("/v1/loads")[1])
    count: int = load["aggregate"]["total_running_reqs"]
    return count


def test_sigterm_lets_running_requests_finish(tmp_path: Path) -> None:
    with serving(tmp_path, *CHAIN) as live:
        results: list[int] = []
        threads = [ask_long(live, results) for _ in range(4)]
        while running(live) < 4:
            time.sleep(0.01)
        live.process.send_signal(signal.SIGTERM)
        live.wait_for("Gracefully exiting")
        assert live.get("/health")[0] == 503
        assert live.process.wait(PATIENCE) == 0
        for thread in threads:
            thread.join()
        assert results == [200] * 4


def test_sigterm_waits_no_longer_than_the_drain_timeout(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain-timeout", "0") as live:
        scheduler = live.scheduler()
        results: list[int] = []
        threads = [ask_long(live, results) for _ in range(8)]
        while running(live) < 8:
            time.sleep(0.01)
        assert live.end() == 0
        until_gone(scheduler)
        for thread in threads:
            thread.join()
        assert "requests are cut off" in live.text()
        assert results == [503] * 8


def test_a_stopped_scheduler_is_unhealthy_and_recovers(tmp_path: Path) -> None:
    with serving(tmp_path, env={"SGLANG_HEALTH_CHECK_TIMEOUT": "1"}) as live:
        scheduler = live.scheduler()
        os.kill(scheduler, signal.SIGSTOP)
        try:
            assert live.get("/health")[0] == 503
            assert live.get("/v1/models")[0] == 200
            assert "Health check failed." in live.text()
        finally:
            os.kill(scheduler, signal.SIGCONT)
        assert live.get("/health")[0] == 200


def test_the_watchdog_ends_a_server_whose_step_never_ends(tmp_path: Path) -> None:
    # A step of this model always ends; a timeout shorter than a long prompt's step stands in.
    with serving(tmp_path, "--watchdog-timeout", "0.01", "--skip-server-warmup") as live:
        ids = list(range(5, 1005)) * 2
        body = {"input_ids": ids, "sampling_params": {"max_new_tokens": 8}}
        with contextlib.suppress(OSError):  # reset, or the end of the stream
            live.post("/generate", body)
        assert live.process.wait(PATIENCE) == GONE
        assert "Scheduler watchdog timeout" in live.text()
