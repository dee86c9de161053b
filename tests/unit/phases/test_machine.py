"""The phase machine on real logs and on what other versions and engines print."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from console.model import Phase
from console.phases import Learned, PhaseMachine, learn, limit_s, remaining_s
from tests.unit.diagnosis.cases import DATA

REAL = [
    path
    for path in sorted((DATA / "sglang-0.5.12-h200").glob("*.log"))
    if "phases" in json.loads(path.with_suffix(".json").read_text("utf-8"))["expect"]
]
"""Logs of real runs whose boundaries were read off by hand; other answers name only the root."""


def test_the_logs_with_boundaries_are_there() -> None:
    assert len(REAL) >= 6


def fed(text: str, engine: str | None = None) -> PhaseMachine:
    machine = PhaseMachine(engine)
    for line in text.split("\n"):
        machine.feed(line)
    return machine


def phase(machine: PhaseMachine) -> Phase:
    """The phase now; a call, so that mypy does not take it for what it was before."""
    return machine.phase


def now(machine: PhaseMachine, name: str) -> object:
    """What the machine says now."""
    return getattr(machine, name)


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_steps_of_a_real_run_have_their_boundaries(path: Path) -> None:
    machine = fed(path.read_bytes().decode())
    steps = {step.name: step for step in machine.steps}
    expected = json.loads(path.with_suffix(".json").read_text("utf-8"))["expect"]["phases"]
    for want in expected:
        name = "draft-load" if want["name"] == "draft" else want["name"]
        assert steps[name].start_line == want["begin_line"], name
        if want["end_line"] is not None and name != "ready":
            assert steps[name].end_line == want["end_line"], name


def test_phases_of_a_healthy_start_in_order_with_times() -> None:
    machine = fed((DATA / "sglang-0.5.12-h200" / "healthy_eagle3.log").read_bytes().decode())
    assert [span.phase for span in machine.spans] == [
        Phase.ARGS,
        Phase.DIST_INIT,
        Phase.LOAD_TARGET,
        Phase.KV_TARGET,
        Phase.GRAPH_TARGET,
        Phase.LOAD_DRAFT,
        Phase.KV_DRAFT,
        Phase.GRAPH_DRAFT,
        Phase.SCHEDULER_READY,
        Phase.WARMUP,
        Phase.READY,
    ]
    spans = {span.phase: span for span in machine.spans}
    assert spans[Phase.GRAPH_TARGET].seconds == 43.0
    assert spans[Phase.READY].start_s == 94.0
    assert now(machine, "failed_in") is None


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("ctx_mismatch", Phase.LOAD_DRAFT),
        ("rmsnorm_crash", Phase.GRAPH_TARGET),
        ("memory_held_by_other", Phase.KV_DRAFT),
    ],
)
def test_a_crash_is_failed_and_says_where(name: str, where: Phase) -> None:
    machine = fed((DATA / "sglang-0.5.12-h200" / f"{name}.log").read_bytes().decode())
    assert phase(machine) is Phase.FAILED
    assert now(machine, "failed_in") is where


def test_progress_of_the_bar_in_hand() -> None:
    machine = fed("[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=1 GB")
    assert now(machine, "progress") is None
    machine.feed(
        "\rLoading safetensors checkpoint shards:  25% Completed | 3/12 [00:01<00:04, 2.1it/s]"
    )
    assert now(machine, "progress") == (3, 12)
    assert machine.spans[-1].total == 12


def test_a_phase_lasts_until_the_next_begins() -> None:
    lines = [
        "[2026-11-30 03:19:16] server_args=ServerArgs(model_path='/m')",
        "[2026-11-30 03:19:24 TP0] Init torch distributed begin.",
        "[2026-11-30 03:19:25 TP0] Init torch distributed ends. elapsed=1.0 s",
        "[2026-11-30 03:19:31 TP0] Load weight begin. avail mem=1 GB",
        "[2026-11-30 03:19:40 TP0] Load weight end. elapsed=9 s, type=LlamaForCausalLM",
        "[2026-11-30 03:19:46] The server is fired up and ready to roll!",
    ]
    spans = fed("\n".join(lines)).spans
    took = {span.phase: span.seconds for span in spans}
    assert took[Phase.ARGS] == 8.0
    assert took[Phase.DIST_INIT] == 7.0
    assert sum(s or 0.0 for s in took.values()) == 30.0, "no second is in no phase"


@pytest.mark.parametrize("path", REAL, ids=lambda p: p.stem)
def test_the_phases_of_a_real_run_leave_no_gap(path: Path) -> None:
    spans = fed(path.read_bytes().decode()).spans
    assert all(a.end_s == b.start_s for a, b in pairwise(spans))


def test_0_5_23_loads_the_draft_before_any_pool() -> None:
    t = "[2026-01-01 00:00:{:02d} TP0] "
    lines = [
        t.format(0) + "server_args={'speculative_algorithm': 'EAGLE3'}",
        t.format(1) + "sglang is using nccl==2.28.3",
        t.format(2) + "Load weight begin. avail mem=1 GB",
        t.format(3) + "Load weight end. elapsed=1 s, type=LlamaForCausalLM",
        t.format(4) + "Load weight begin. avail mem=1 GB",
        t.format(5) + "Load weight end. elapsed=1 s, type=LlamaForCausalLMEagle3",
        t.format(6) + "KV Cache is allocated. dtype: bf16, #tokens: 10",
        t.format(7) + "Memory pool end. avail mem=1 GB",
        t.format(8) + "KV Cache is allocated. dtype: bf16, #tokens: 10",
        t.format(9) + "Memory pool end. avail mem=1 GB",
        t.format(10) + "Capture target verify CUDA graph begin. backend=fa3",
        t.format(11) + "Capture target verify CUDA graph end. bs=[1]",
        t.format(12) + "Capture draft decode CUDA graph begin.",
        t.format(13) + "Capture draft decode CUDA graph end.",
        t.format(14) + "max_total_num_tokens=10, chunked_prefill_size=1",
        t.format(15) + "The server is fired up and ready to roll!",
    ]
    assert [span.phase for span in fed("\n".join(lines)).spans] == [
        Phase.ARGS,
        Phase.DIST_INIT,
        Phase.LOAD_TARGET,
        Phase.LOAD_DRAFT,
        Phase.KV_TARGET,
        Phase.KV_DRAFT,
        Phase.GRAPH_TARGET,
        Phase.GRAPH_DRAFT,
        Phase.SCHEDULER_READY,
        Phase.READY,
    ]


def test_vllm_reaches_ready_through_its_own_lines() -> None:
    machine = fed((DATA / "kinds" / "healthy-vllm.log").read_bytes().decode())
    assert phase(machine) is Phase.READY
    seen = [span.phase for span in machine.spans]
    assert seen == [
        Phase.ARGS,
        Phase.DIST_INIT,
        Phase.LOAD_TARGET,
        Phase.AUTOTUNE,
        Phase.KV_TARGET,
        Phase.GRAPH_TARGET,
        Phase.SCHEDULER_READY,
        Phase.READY,
    ]


def test_ranks_behind_are_named() -> None:
    lines = [f"[2026-01-01 00:00:00 TP{r}] Load weight begin. avail mem=1 GB" for r in range(4)]
    lines += [f"[2026-01-01 00:01:00 TP{r}] Load weight end. type=X" for r in (0, 1, 3)]
    machine = fed("\n".join(lines))
    assert now(machine, "behind") == ("TP2",)
    machine.feed("[2026-01-01 00:01:09 TP2] Load weight end. type=X")
    assert now(machine, "behind") == ()


def test_a_new_start_begins_anew() -> None:
    log = (DATA / "sglang-0.5.12-h200" / "rmsnorm_crash.log").read_bytes().decode()
    machine = fed(log)
    assert phase(machine) is Phase.FAILED
    machine.feed("[2026-11-29 15:00:00] server_args=ServerArgs(model_path='x')")
    assert phase(machine) is Phase.ARGS
    assert machine.starts == 2
    assert now(machine, "failed_in") is None


def test_an_argument_check_that_fails_is_a_failed_start() -> None:
    machine = fed((DATA / "kinds" / "topk-without-steps.log").read_bytes().decode())
    assert phase(machine) is Phase.FAILED
    assert now(machine, "failed_in") is Phase.ARGS


def test_shutting_down_is_draining_then_stopped() -> None:
    machine = fed("[2026-01-01 00:00:00] The server is fired up and ready to roll!")
    machine.feed("[2026-01-01 00:00:01] SIGTERM received. Draining requests and shutting down...")
    assert phase(machine) is Phase.DRAINING
    machine.feed("[2026-01-01 00:00:09] INFO:     Finished server process [9]")
    assert phase(machine) is Phase.STOPPED


def test_stalled_counts_what_passed_since_the_last_line() -> None:
    machine = PhaseMachine()
    machine.feed("[2026-01-01 00:00:00 TP0] server_args=ServerArgs(a=1)", now_s=1000.0)
    machine.feed("[2026-01-01 00:00:05 TP0] Load weight begin. avail mem=1 GB", now_s=1005.0)
    learned = {Phase.LOAD_TARGET: Learned(median_s=40.0, p90_s=50.0, runs=4)}
    assert machine.stalled(1100.0, learned) is None
    stall = machine.stalled(1200.0, learned)
    assert stall is not None
    assert (stall.phase, stall.elapsed_s, stall.limit_s) == (Phase.LOAD_TARGET, 195.0, 150.0)
    machine.feed("[2026-01-01 00:05:00] The server is fired up and ready to roll!", now_s=1300.0)
    assert machine.stalled(99999.0, learned) is None, "ready may last"


def test_durations_are_learned_from_earlier_starts() -> None:
    runs = [
        fed((DATA / "sglang-0.5.12-h200" / f"{name}.log").read_bytes().decode()).spans
        for name in ("healthy_eagle3", "ctx_mismatch", "hidden_mismatch")
    ]
    learned = learn(runs)
    assert learned[Phase.GRAPH_TARGET].runs == 2
    assert learned[Phase.DIST_INIT].runs == 3
    assert learned[Phase.DIST_INIT].median_s == 3.0
    assert Phase.READY not in learned
    assert limit_s(Phase.DIST_INIT, learned) == 30.0, "short phases get a floor"
    assert limit_s(Phase.READY, learned) is None


def test_the_time_left_is_what_earlier_starts_took() -> None:
    healthy = fed((DATA / "sglang-0.5.12-h200" / "healthy_eagle3.log").read_bytes().decode())
    learned = learn([healthy.spans])
    assert remaining_s((), learned) == 94.0
    assert remaining_s(healthy.spans, learned) == 0.0
    path = DATA / "sglang-0.5.12-h200" / "hidden_mismatch.log"
    capturing = fed(path.read_bytes().decode())
    assert capturing.phase is Phase.GRAPH_TARGET
    left = remaining_s(capturing.spans, learned, elapsed_s=3.0)
    assert left == 40.0 + 14.0, "the rest of the graphs, then draft, warm-up"
    assert remaining_s(capturing.spans, {}) is None
    failed = fed((DATA / "sglang-0.5.12-h200" / "ctx_mismatch.log").read_bytes().decode())
    assert remaining_s(failed.spans, learned) is None


def test_a_line_without_any_time_is_unknown_and_not_zero() -> None:
    machine = fed("Load weight begin.")
    assert machine.elapsed_s() is None
    assert machine.stalled(5.0) is None
    assert machine.spans[-1].start_s is None


def test_carrier_stamps_yield_to_the_loggers_own() -> None:
    machine = fed(
        "2026-01-01T09:00:00Z starting\n"
        "2026-01-01T09:00:01Z [2026-01-01 17:00:01] server_args=ServerArgs(a=1)\n"
        "2026-01-01T09:00:04Z [2026-01-01 17:00:04 TP0] Load weight begin. avail mem=1 GB"
    )
    assert machine.spans[-1].start_s == 3.0
