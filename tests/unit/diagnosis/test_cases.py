"""Every case under tests/data/cases gets the answer it expects; the figures are printed."""

from __future__ import annotations

import pytest

from console.diagnosis import diagnose, diagnosis_to_json
from tests.unit.diagnosis.cases import Case, cases, judge, score

FLOOR = {"root": 0.97, "file_line": 0.95, "rank": 0.95, "category": 0.92}


@pytest.mark.parametrize("folder", ["reports", "sglang-0.5.12-h200", "kinds"])
def test_scores_stay_above_their_floor(folder: str) -> None:
    counts = score(folder)
    print(f"{folder}: " + ", ".join(f"{k} {right}/{total}" for k, (right, total) in counts.items()))
    for name, (right, total) in counts.items():
        assert right >= FLOOR[name] * total, f"{name} {right}/{total}"


@pytest.mark.parametrize(
    "case",
    [c for c in cases("reports", "sglang-0.5.12-h200", "kinds") if c.expect["root"] is None],
    ids=str,
)
def test_no_root_is_invented_where_nothing_was_raised(case: Case) -> None:
    assert diagnose(case.log).root is None


@pytest.mark.parametrize("case", cases("sglang-0.5.12-h200"), ids=str)
def test_logs_of_a_real_run_are_right_in_every_field(case: Case) -> None:
    assert all(judge(case.expect, diagnose(case.log)).values())


@pytest.mark.parametrize("case", cases("reports", "kinds"), ids=str)
def test_what_is_said_can_be_acted_on(case: Case) -> None:
    answer = diagnose(case.log)
    if answer.category != "none":
        assert answer.summary
        assert answer.fix, "a category without a fix leaves the operator alone"
        assert "{" not in answer.fix, "a place in the fix was not filled"
    if answer.root and answer.root.log_line:
        assert 1 <= answer.root.log_line <= case.log.count(b"\n") + 1


def test_context_length_is_fixed_with_the_number_from_the_message() -> None:
    case = next(c for c in cases("sglang-0.5.12-h200") if c.id == "ctx_mismatch")
    change = diagnose(case.log).change
    assert change is not None
    assert dict(change.flags) == {"context-length": 1024}
    assert "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN" in change.risk


@pytest.mark.parametrize(
    ("log", "category"),
    [
        (
            b"[2026-01-01 00:00:00] The server is fired up and ready to roll!\nKilled\n",
            "peer-rank-lost",
        ),
        (b"[2026-01-01 00:00:00 TP0] Load weight begin. avail mem=9 GB\nKilled\n", "host-oom-kill"),
        (b"Out of memory: Killed process 9 (python3) total-vm:9kB\nKilled\n", "host-oom-kill"),
    ],
)
def test_a_kill_is_blamed_on_the_oom_killer_only_on_evidence(log: bytes, category: str) -> None:
    answer = diagnose(log)
    assert answer.root is not None
    assert (answer.root.type, answer.category) == ("SIGKILL", category)
    if b"Out of memory" not in log:
        assert "journalctl -k" in answer.fix


def test_speculative_flags_are_set_all_three_together() -> None:
    case = next(c for c in cases("kinds") if c.id == "topk-without-steps")
    change = diagnose(case.log).change
    assert change is not None
    assert set(change.flags) == {
        "speculative-num-steps",
        "speculative-eagle-topk",
        "speculative-num-draft-tokens",
    }


def test_the_same_knob_turns_both_ways() -> None:
    by_id = {c.id: c for c in cases("reports")}
    at_load = diagnose(by_id["sg-4330"].log).change
    at_capture = diagnose(by_id["sg-5285"].log).change
    assert at_load is not None
    assert at_capture is not None
    assert at_load.flags["mem-fraction-static"] > at_capture.flags["mem-fraction-static"]


def test_phase_says_where_it_failed() -> None:
    by_id = {c.id: c for c in cases("sglang-0.5.12-h200")}
    assert diagnose(by_id["ctx_mismatch"].log).phase == "load_draft"
    assert diagnose(by_id["rmsnorm_crash"].log).phase == "graph_target"
    assert diagnose(by_id["memory_held_by_other"].log).phase == "kv_draft"
    assert diagnose(by_id["healthy_eagle3"].log).phase == "ready"


def test_other_ranks_are_told_as_victims() -> None:
    by_id = {c.id: c for c in cases("reports")}
    victims = diagnose(by_id["sg-4503"].log).victims
    assert any("TP1 ValueError" in victim for victim in victims)


def test_json_document_has_the_contract_keys() -> None:
    document = diagnosis_to_json(diagnose(cases("reports")[0].log))
    assert {"schema", "root", "category", "phase", "summary", "fix", "victims"} <= set(document)
    assert set(document["root"]) == {"type", "message", "file", "line", "rank", "log_line"}
    assert diagnosis_to_json(diagnose(b""))["root"] is None


def test_a_fix_speaks_the_engines_own_flags() -> None:
    log = next(c.log for c in cases("kinds") if c.id == "vllm-kv-too-small")
    answer = diagnose(log)
    assert answer.change is not None
    assert "gpu-memory-utilization" in answer.change.flags
    assert "--gpu-memory-utilization" in answer.fix
    assert "mem-fraction" not in answer.fix
    forced = diagnose(log, engine="sglang").change
    assert forced is not None
    assert "mem-fraction-static" in forced.flags


def test_a_window_asked_for_is_not_blamed_on_the_draft() -> None:
    by_id = {c.id: c for c in cases("kinds", "sglang-0.5.12-h200")}
    for case in ("ctx-longer-than-derived", "ctx-asked-of-bundled"):
        answer = diagnose(by_id[case].log)
        assert "was asked for" in answer.summary, case
        assert "draft" not in answer.fix, case
    for case in ("context-target", "ctx_mismatch"):
        assert "draft model's window" in diagnose(by_id[case].log).summary, case


def test_a_long_message_is_cut_between_words() -> None:
    case = next(c for c in cases("kinds") if c.id == "ctx-asked-of-bundled")
    answer = diagnose(case.log)
    said = answer.summary.partition(" - ")[0]
    assert said.endswith(" …")
    assert f"{said.removesuffix('…')}".encode() in case.log
    assert answer.explanation.startswith("The context length that was asked for")
