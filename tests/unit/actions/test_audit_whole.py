"""The audit file stays whole: torn lines, and steps that never got their end."""

from pathlib import Path

from console.actions.audit import AuditLog


def test_a_torn_line_takes_no_other_with_it(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    audit.write("intent", plan="p", detail={"step": 0})
    whole = audit.path.read_bytes()
    audit.path.write_bytes(whole + whole[:20])
    audit.write("result", plan="p", step=0)
    assert [event["event"] for event in audit.read()] == ["intent", "result"]
    assert audit.open_steps("p") == ()


def test_steps_without_an_end_are_known_by_plan(tmp_path: Path) -> None:
    audit = AuditLog(tmp_path / "audit.jsonl")
    assert audit.open_steps("p") == ()
    for step in (0, 1):
        audit.write("intent", plan="p", detail={"step": step})
    audit.write("intent", plan="other", detail={"step": 0})
    audit.write("interrupted", plan="p", step=0)
    assert audit.open_steps("p") == (1,)
    assert audit.open_steps("other") == (0,)
    audit.write("intent", plan="p", detail={"step": 0})
    assert audit.open_steps("p") == (1, 0)
