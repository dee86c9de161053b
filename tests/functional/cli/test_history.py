"""``runs``, ``resume``, ``undo`` and ``report`` over a host's own files."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import time
from pathlib import Path

import pytest

from console.actions.plan import plan_to_journal
from console.model import Plan, Step, StepKind
from tests.functional.cli.conftest import Command

SECRET = "hf_abcdefghijklmnopqrstuvwx"


def put_run(specops: Command, log: Path) -> None:
    runs = specops.folder / "state" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    body = {
        "format": 1, "run_id": "ab12cd34", "server": "one", "engine": "sglang", "host": "here",
        "argv": ["python3", "-m", "sglang.launch_server", "--api-key", "geheim-1234"],
        "env": {"HF_TOKEN": "secret:HF_TOKEN", "NCCL_PROTO": "LL"}, "cwd": "/", "log": str(log),
        "port": 1, "launcher": None, "session": None, "unit": None, "launched_at": 1.0,
        "launched_by": "ann@\x1b[31mlaptop", "outcome": "failed", "phases": [["args", 0.5]],
    }  # fmt: skip
    (runs / "ab12cd34.json").write_text(json.dumps(body))


def put_plan(specops: Command, *, done: int, undo: bool = False) -> Path:
    """A plan of two steps that make files; so many of them are in its journal."""
    files = [specops.folder / name for name in ("first", "second")]
    steps = tuple(
        Step(StepKind.RUN, "here", f"make {f.name}", argv=("touch", str(f)), dangerous=True)
        for f in files
    )
    plan = Plan("relaunch-0a1b2c", "relaunch", "here", steps, server="one", created_at=1.0)
    rows: list[dict[str, object]] = [
        {"event": "plan", "time": time.time(), "by": "ann", "plan": plan_to_journal(plan)}
    ]
    for number in range(done):
        data = {}
        if undo:
            data["undo"] = {
                "kind": "run", "host": "here", "why": "take it away",
                "argv": ["rm", "--", str(files[number])], "dangerous": True,
            }  # fmt: skip
            files[number].touch()
        rows += [
            {"event": "intent", "step": number, "kind": "run"},
            {"event": "result", "step": number, "outcome": "ok", "seconds": 0.1, "data": data},
        ]
    folder = specops.folder / "state" / "journals"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps({"format": 1, **row}) + "\n" for row in rows)
    (folder / f"{plan.id}.jsonl").write_text(text)
    return specops.folder


def test_runs_and_unfinished_plans_are_listed(specops: Command, tmp_path: Path) -> None:
    put_run(specops, tmp_path / "x.log")
    put_plan(specops, done=1)
    host = specops("runs", "--json").json["hosts"][0]
    assert [(r["run_id"], r["outcome"], r["running"]) for r in host["runs"]] == [
        ("ab12cd34", "failed", False)
    ]
    assert "geheim-1234" not in json.dumps(host)
    assert host["plans"][0]["outcome"] == "interrupted"
    assert host["plans"][0]["done"] == [0]
    shown = specops("runs").out
    assert "specops resume relaunch-0a1b2c" in shown
    assert "\x1b" not in shown


def test_resume_does_what_is_left_and_nothing_twice(specops: Command) -> None:
    folder = put_plan(specops, done=1)
    dry = specops("resume", "relaunch-0a1b2c", "--dry-run", "--json")
    assert dry.code == 1
    assert specops("resume", "relaunch-0a1b2c").code == 4
    assert not (folder / "second").exists()
    ran = specops("resume", "relaunch-0a1b2c", "--yes", "--json")
    assert ran.code == 0, ran.err
    assert [result["step"] for result in ran.json["results"]] == [1]
    assert (folder / "second").exists()
    assert not (folder / "first").exists()  # it was done before, by whoever was interrupted
    assert specops("resume", "relaunch-0a1b2c", "--yes").code == 2


@pytest.mark.parametrize("command", ["resume", "undo"])
def test_a_hosts_journal_decides_nothing_about_another_host(specops: Command, command: str) -> None:
    """Whoever can write to one host's records must not reach the others by a resumed plan."""
    folder = put_plan(specops, done=1, undo=True)
    specops.write("hosts:\n  here: {transport: local}\n  there: {transport: local}\n")
    journal = next((specops.folder / "state" / "journals").iterdir())
    forged = journal.read_text().replace('"host": "here", "why"', '"host": "there", "why"')
    forged = forged.replace('"kind": "run", "host": "here"', '"kind": "run", "host": "there"')
    assert forged != journal.read_text()
    journal.write_text(forged)
    ran = specops(command, "relaunch-0a1b2c", "--host", "here", "--yes")
    assert ran.code == 4, ran.err
    assert "its journal on here is for there" in ran.err
    assert (folder / "first").exists()
    assert not (folder / "second").exists()


def test_a_journal_of_another_plan_is_not_resumed(specops: Command) -> None:
    put_plan(specops, done=1)
    journal = next((specops.folder / "state" / "journals").iterdir())
    journal.write_text(journal.read_text().replace("relaunch-0a1b2c", "../../../tmp/x"))
    ran = specops("resume", "relaunch-0a1b2c", "--host", "here", "--yes")
    assert ran.code == 6
    assert "that of another plan" in ran.err


def test_undo_goes_backwards(specops: Command) -> None:
    folder = put_plan(specops, done=2, undo=True)
    ran = specops("undo", "relaunch-0a1b2c", "--yes", "--json")
    assert ran.code == 0, ran.err
    words = [step["argv"][-1].rsplit("/", 1)[-1] for step in ran.json["plan"]]
    assert words == ["second", "first"]
    assert not (folder / "first").exists()
    assert not (folder / "second").exists()


def test_an_old_plan_is_not_offered_over_a_later_one(specops: Command) -> None:
    put_plan(specops, done=1)
    assert "specops resume relaunch-0a1b2c" in specops("runs").out
    folder = specops.folder / "state" / "journals"
    rows = (folder / "relaunch-0a1b2c.jsonl").read_text().replace("0a1b2c", "0d4e5f").splitlines()
    later = {**json.loads(rows[0]), "time": time.time() + 60}
    end = {"format": 1, "event": "end", "outcome": "ok"}
    text = "".join(f"{row}\n" for row in (json.dumps(later), *rows[1:], json.dumps(end)))
    (folder / "relaunch-0d4e5f.jsonl").write_text(text)
    assert "resume" not in specops("runs").out
    (host,) = specops("runs", "--json").json["hosts"]
    assert {plan["outcome"] for plan in host["plans"]} == {"interrupted", "ok"}


def test_a_plan_without_an_end_is_listed_however_old_it_is(specops: Command) -> None:
    folder = put_plan(specops, done=1) / "state" / "journals"
    first = (folder / "relaunch-0a1b2c.jsonl").read_text().splitlines()[0]
    for number in range(25):
        text = first.replace("0a1b2c", f"00{number:04}").replace('"one"', f'"s{number}"')
        later = {**json.loads(text), "time": time.time() + 60 + number}
        end = {"format": 1, "event": "end", "outcome": "ok"}
        rows = f"{json.dumps(later)}\n{json.dumps(end)}\n"
        (folder / f"relaunch-00{number:04}.jsonl").write_text(rows)
    assert "specops resume relaunch-0a1b2c   or   specops undo" in specops("runs").out
    (host,) = specops("runs", "--json").json["hosts"]
    assert len(host["plans"]) == 21
    assert {p["plan_id"]: p["ways"] for p in host["plans"] if p["ways"]} == {
        "relaunch-0a1b2c": ["resume", "undo"]
    }


def test_what_was_undone_is_not_offered_again(specops: Command) -> None:
    put_plan(specops, done=1, undo=True)
    assert "specops resume relaunch-0a1b2c" in specops("runs").out
    assert specops("undo", "relaunch-0a1b2c", "--yes").code == 0
    assert "specops resume" not in specops("runs").out
    plans = specops("runs", "--json").json["hosts"][0]["plans"]
    assert {p["action"]: p["outcome"] for p in plans} == {"relaunch": "undone", "undo": "ok"}
    again = specops("resume", "relaunch-0a1b2c", "--yes")
    assert again.code == 2
    assert "was undone" in again.err


@pytest.mark.parametrize("command", ["resume", "undo", "report"])
def test_what_nobody_knows_is_said(specops: Command, command: str) -> None:
    ran = specops(command, "nope", "--json")
    assert ran.code == 2
    assert "nope" in ran.json["error"]["message"]


def test_a_lost_host_may_be_the_one(specops: Command) -> None:
    specops.write("hosts:\n  here: {transport: local}\n  gone: {address: 127.0.0.1, port: 1}\n")
    ran = specops("undo", "relaunch-0a1b2c", "--yes", "--json")
    assert ran.code == 3
    assert "gone" in ran.json["error"]["hint"]


@pytest.mark.parametrize("name", ["a" * 300, "../x", "a/b", ".hidden", "a b"])
def test_what_cannot_be_a_run_id_is_said_so(specops: Command, name: str) -> None:
    ran = specops("report", name)
    assert ran.code == 2
    assert "cannot be a run id" in ran.err
    assert len(ran.err.splitlines()) == 1
    assert len(ran.err) < 200


def test_report_holds_the_end_of_the_log_and_no_secret(specops: Command, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        f"earlier\nserver_args=ServerArgs(api_key='geheim-1234')\nwith {SECRET}\n"
        "\x1b]52;c;eA==\x07\n"
        "Traceback (most recent call last):\n"
        '  File "/x/model_config.py", line 541, in _derive\n    raise ValueError(msg)\n'
        "ValueError: the value of my own token is own-value-77\n"
    )
    put_run(specops, log)
    specops.env["HF_TOKEN"] = "own-value-77"
    ran = specops("report", "ab12cd34", "-o", "bundle.tar.gz", "--json")
    assert ran.code == 0, ran.err
    written = specops.folder / "bundle.tar.gz"
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    with tarfile.open(fileobj=io.BytesIO(written.read_bytes())) as archive:
        files = {
            member.name.rsplit("/", 1)[-1]: archive.extractfile(member).read().decode()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
    assert set(files) == {"run.json", "log.txt", "diagnosis.json", "phases.json", "host.json"}
    assert json.loads(files["diagnosis.json"])["root"]["line"] == 541
    everything = "".join(files.values())
    for secret in (SECRET, "geheim-1234", "own-value-77", "\x1b"):
        assert secret not in everything
    assert "secret:HF_TOKEN" in files["run.json"]
    assert specops("report", "ab12cd34", "-o", "bundle.tar.gz").code == 2  # never over a file


@pytest.mark.server
def test_an_old_plan_leaves_a_later_run_alone(bundled: Command) -> None:
    first = bundled("launch", "one", "--yes", "--wait", "--json").json
    journal = bundled.folder / "state" / "journals" / f"{first['plan_id']}.jsonl"
    rows = [json.loads(row) for row in journal.read_text().splitlines()]
    watch = next(i for i, step in enumerate(first["plan"]) if step["kind"] == "watch")
    begun = next(i for i, row in enumerate(rows) if row.get("step") == watch)
    journal.write_text("".join(json.dumps(row) + "\n" for row in rows[:begun]))
    assert bundled("stop", "one", "--yes").code == 0
    later = bundled("launch", "one", "--yes", "--wait", "--json")
    assert later.code == 0, later.err
    lives = bundled("status", "--json").json["hosts"][0]["servers"][0]
    for way in ("resume", "undo"):
        ran = bundled(way, first["plan_id"], "--yes")
        assert ran.code == 4, ran.out + ran.err
        assert f"superseded: run {lives['run_id']}" in ran.err
        assert f"specops undo {later.json['plan_id']}" in ran.err
    now = bundled("status", "--json").json["hosts"][0]["servers"][0]
    assert (now["pid"], now["phase"]) == (lives["pid"], "ready")
    assert "specops resume" not in bundled("runs").out
    assert bundled("stop", "one", "--yes").code == 0
    known = bundled.hosts.read_text()
    bundled.write(known.replace("  one:", "  two:"))  # whose name nobody knows any more
    plan = bundled("undo", later.json["plan_id"], "--dry-run", "--json")
    bundled.write(known)
    assert (plan.code, plan.json["plan"]) == (0, [])
    assert bundled("launch", "one", "--yes", "--wait").code == 0
    assert bundled("stop", "one", "--yes").code == 0
    assert "specops undo" not in bundled("runs").out
    later = bundled("launch", "one", "--yes", "--wait", "--json")
    assert bundled("undo", later.json["plan_id"], "--yes").code == 0
    again = bundled("undo", later.json["plan_id"], "--yes")
    assert again.code == 2
    assert "was undone" in again.err
