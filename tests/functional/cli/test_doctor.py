"""``specops doctor``: checks, the mended terminal, the purged host."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
import tty
from pathlib import Path

from console.cli.doctor import shadows
from tests.functional.cli.conftest import Command


def test_a_sound_installation_and_a_host(specops: Command) -> None:
    ran = specops("doctor", "here", "--json")
    checks = {check["id"]: check for check in ran.json["checks"]}
    assert ran.code == 0, checks
    assert ran.json["ok"]
    assert checks["installation.shadowed"]["state"] == "ok"
    assert "asyncssh" in checks["installation.dependencies"]["message"]
    assert str(specops.hosts.name) in checks["config.hosts"]["message"]
    assert str(specops.folder / "state") in checks["host.here"]["message"]


def test_what_is_wrong_is_named(specops: Command) -> None:
    specops.write("hosts:\n  here: {transprt: local}\n")
    ran = specops("doctor", "--json")
    found = {check["id"]: check for check in ran.json["checks"]}
    assert ran.code == 1
    assert not ran.json["ok"]
    assert found["config.hosts"]["state"] == "failed"
    assert "transport" in found["config.hosts"]["fix"]


def test_a_host_that_is_not_reached(specops: Command) -> None:
    specops.write("hosts:\n  gone: {address: 127.0.0.1, port: 1}\n")
    assert specops("doctor", "gone", "--json").code == 3


def test_another_console_on_the_path_is_found(tmp_path: Path) -> None:
    own = tmp_path / "site" / "console"
    for folder in (own, tmp_path / "other" / "console"):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
    path = [str(tmp_path / "site"), str(tmp_path / "other")]
    assert shadows(own, path) == [tmp_path / "other" / "console" / "__init__.py"]
    assert shadows(own, path[:1]) == []


def test_a_broken_terminal_is_mended(specops: Command) -> None:
    leader, follower = pty.openpty()
    tty.setraw(follower)
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *specops.argv("doctor", "--terminal")],
        env=specops.env, stdin=follower, stdout=follower, stderr=subprocess.PIPE,
    )  # fmt: skip
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    sent = os.read(leader, 65536)
    modes = termios.tcgetattr(follower)
    for sequence in (b"\x1b[?1049l", b"\x1b[?1003l", b"\x1b[?2004l", b"\x1b[?25h", b"\x1b[<u"):
        assert sequence in sent
    assert modes[0] & termios.ICRNL
    assert modes[1] & termios.OPOST
    wanted = termios.ECHO | termios.ICANON | termios.ISIG
    assert modes[3] & wanted == wanted
    assert modes[6][termios.VINTR] == b"\x03"
    os.close(leader)
    os.close(follower)


def record(specops: Command, **more: object) -> Path:
    """A run record as a launch leaves it."""
    runs = specops.folder / "state" / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    body: dict[str, object] = {
        "format": 1, "run_id": "ab12cd34", "server": "one", "engine": "bundled", "host": "here",
        "argv": ["python3"], "env": {}, "cwd": "/", "log": "", "port": 1, "launcher": None,
        "session": None, "unit": None, "launched_at": 1.0, "launched_by": "x",
    }  # fmt: skip
    path = runs / "ab12cd34.json"
    path.write_text(json.dumps({**body, **more}))
    return path


def test_purge_removes_what_is_ours_and_leaves_the_rest(specops: Command) -> None:
    state = specops.folder / "state"
    path = record(specops, log="/var/tmp/elsewhere.log")
    (state / "theirs.txt").write_text("somebody's")
    asked = specops("doctor", "--purge", "here")
    assert asked.code == 4
    assert path.exists()
    listed = specops("doctor", "--purge", "here", "--dry-run", "--json")
    assert listed.code == 1
    assert listed.json["found"] == [str(state / "runs")]
    assert path.exists()
    done = specops("doctor", "--purge", "here", "--yes", "--json")
    assert done.code == 0, done.err
    assert str(state / "runs") in done.json["removed"]
    assert done.json["left"] == [str(state / "theirs.txt"), "/var/tmp/elsewhere.log"]
    assert [p.name for p in state.iterdir()] == ["theirs.txt"]
    audit = (specops.folder / "operator" / "specops" / "audit.jsonl").read_text()
    assert [json.loads(line)["event"] for line in audit.splitlines()] == ["purge", "purged"]


def test_purge_refuses_while_a_launched_server_runs(specops: Command) -> None:
    path = record(specops)
    server = subprocess.Popen(
        ["sleep", "60"], env={**os.environ, "SPECOPS_RUN_ID": "ab12cd34"}, start_new_session=True
    )
    try:
        ran = specops("doctor", "--purge", "here", "--yes", "--json")
        assert ran.code == 4
        assert "one (ab12cd34)" in ran.json["error"]["message"]
        assert path.exists()
        told = specops("doctor", "--purge", "here", "--yes", "--force", "--json")
        assert told.code == 0, told.err
        assert not path.exists()
        assert server.poll() is None
    finally:
        server.kill()
        server.wait()


def test_a_key_file_that_is_not_there_is_named(specops: Command) -> None:
    key = specops.folder / "id_gone"
    specops.write(f"hosts:\n  far: {{address: 127.0.0.1, port: 1, identity_files: [{key}]}}\n")
    ran = specops("status", "far")
    assert ran.code == 3
    assert f"far: {key} cannot be read: No such file or directory" in ran.err
