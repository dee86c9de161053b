"""The launch verb: a detached server with its record. Not in a read-only archive.

With systemd: a transient service (its cgroup is its identity, systemd keeps its exit status).
Elsewhere: a session of its own under a small waiting process that only writes the exit status.
"""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

from console.agent import change, child, machine, proc, record, state, wire
from console.agent.calls import Call, VerbError, Verbs
from console.agent.files import absolute

START_TIMEOUT_S = 30.0
_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")


def launch(call: Call) -> dict[str, Any]:
    """The verb: starts, records and returns the run with its process and unit filled in."""
    run = call.args.get("run")
    if not isinstance(run, dict) or not isinstance(run.get("env"), dict):
        raise VerbError("usage", "run must be an object with env")
    name = state.checked_name(str(run.get("run_id", "")))
    job = {
        "argv": Call(call.id, run, call._link).words("argv"),
        "env": environment(run["env"], call.variables("secrets"), name),
        "cwd": absolute(str(run.get("cwd") or "/")),
        "log": absolute(str(run.get("log") or os.path.join(state.folder("runs"), name + ".log"))),
        "exit_file": os.path.join(state.folder("runs"), name + ".exit"),
    }
    if not job["argv"]:
        raise VerbError("usage", "argv is empty")
    record.prepare()
    if os.path.exists(os.path.join(state.folder("runs"), name + ".json")):
        raise VerbError("failed", "run {} exists already".format(name))
    check_paths(job)
    run = dict(run, log=job["log"], cwd=job["cwd"], unit=None)
    kind = systemd_kind() if call.args.get("scope", True) else None
    started = start_unit(run, job, kind) if kind else start_session(job)
    run["session"] = started.pop("session") if started else None
    run["launcher"] = dict(started, boot_id=machine.boot_id()) if started else None
    record.save(run)
    return run


def environment(wanted: dict[str, Any], secrets: dict[str, str], run_id: str) -> dict[str, str]:
    """The server's variables: the login's, then the run's, secrets put in for ``secret:NAME``."""
    keep = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "SHELL", "LD_LIBRARY_PATH", "TZ")
    env = {key: os.environ[key] for key in keep if key in os.environ}
    env.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    for key, value in {**wanted, **secrets}.items():
        if not _NAME.match(str(key)) or not isinstance(value, str) or "\0" in value:
            raise VerbError("usage", "{!r} cannot be an environment variable".format(key))
        if key not in secrets and value.startswith("secret:"):
            raise VerbError("usage", "no value was given for {} ({})".format(key, value))
        env[key] = value
    env["SPECOPS_RUN_ID"] = run_id
    env.setdefault("PYTHONUNBUFFERED", "1")
    return env


def check_paths(job: dict[str, Any]) -> None:
    """Fail before anything starts: working directory, log folder, room for the log."""
    if not os.path.isdir(job["cwd"]):
        raise VerbError("failed", "{}: no such directory to start in".format(job["cwd"]))
    folder = os.path.dirname(job["log"])
    os.makedirs(folder, exist_ok=True)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    os.close(os.open(job["log"], flags, 0o644))
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize < 1 << 20:
        raise VerbError("failed", "{}: the disk is full".format(folder), "make room for the log")


def start_session(job: dict[str, Any]) -> dict[str, int]:
    """Start under a waiting process of our own; pid, start_ticks and session of the server.

    Raises ``VerbError`` when it cannot be executed.
    """
    keeper = child.spawn("starter", detached=True)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        keeper.stdin.write(wire.dumps(job) + b"\n")
        keeper.stdin.close()
        line = keeper.stdout.readline(65536)
    except BrokenPipeError:
        line = b""
    finally:
        keeper.stdout.close()
    if not line:
        assert keeper.stderr is not None
        why = keeper.stderr.read(4096).decode("utf-8", "replace").strip().splitlines()
        raise VerbError("failed", "the server could not be started: " + " ".join(why[-1:]))
    if keeper.stderr is not None:
        keeper.stderr.close()
    keeper.wait()  # the middle process; the waiting one goes on by itself
    answer = wire.loads(line)
    if "error" in answer:
        raise VerbError("failed", answer["error"])
    return {name: int(answer[name]) for name in ("pid", "start_ticks", "session")}


def systemd_kind() -> str | None:
    """``--system`` as root, ``--user`` where it outlives the login, else ``None``."""
    if not machine.has_systemd():
        return None
    if os.geteuid() == 0:
        return "--system"
    lingers = os.path.exists("/var/lib/systemd/linger/" + machine.user_name(os.geteuid()))
    bus = "/run/user/{}/bus".format(os.geteuid())
    return "--user" if lingers and os.path.exists(bus) else None


def start_unit(run: dict[str, Any], job: dict[str, Any], kind: str) -> dict[str, int] | None:
    """Start as a transient service, its variables in a file of mode 0600 while it starts.

    The main process as ``start_session`` gives it, or ``None`` when it has ended already.
    """
    unit = "specops-{}.service".format(run["run_id"])
    env_file = job["exit_file"][: -len(".exit")] + ".env"
    change.replace(env_file, env_lines(job["env"]), 0o600)
    script = """echo '{"format":1,"result":"'"$SERVICE_RESULT"'","how":"'"$EXIT_CODE"'","""
    script += """"status":"'"$EXIT_STATUS"'"}' > "$1\""""
    properties = [
        "KillMode=control-group",
        "TimeoutStopSec=60",
        "OOMPolicy=continue",
        "WorkingDirectory=" + job["cwd"],
        "StandardInput=null",
        "StandardOutput=append:" + job["log"],
        "StandardError=append:" + job["log"],
        "EnvironmentFile=-" + env_file,  # gone by the time that ExecStopPost reads it again
        "LimitNOFILE=1048576",
        "LimitMEMLOCK=infinity",
        "ExecStopPost=/bin/sh -c {} sh {}".format(quoted(script), quoted(job["exit_file"])),
    ]
    command = ["systemd-run", kind, "--quiet", "--unit=" + unit, "--service-type=exec"]
    command += ["--property=" + item for item in properties]
    # systemd expands $ in a command line
    command += ["--", *[word.replace("$", "$$") for word in job["argv"]]]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=START_TIMEOUT_S,
            check=False,
            env=user_bus(),
        )
    except subprocess.TimeoutExpired:
        raise VerbError("failed", "systemd-run did not answer in 30 s") from None
    finally:
        os.unlink(env_file)
    if done.returncode != 0:
        why = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise VerbError("failed", "systemd-run: " + " ".join(why[-1:])[:400])
    run["unit"] = unit
    pid = main_pid(unit, kind)
    seen = proc.stat(pid) if pid else None
    if seen is None:
        return None
    return {"pid": pid, "start_ticks": seen.start_ticks, "session": seen.sid}


def user_bus() -> dict[str, str]:
    """The agent's variables with the user's bus, which a login without PAM lacks."""
    env = dict(os.environ)
    env.setdefault("XDG_RUNTIME_DIR", "/run/user/{}".format(os.geteuid()))
    return env


def main_pid(unit: str, kind: str) -> int:
    """The main process of a unit, 0 when it has ended already."""
    done = subprocess.run(
        ["systemctl", kind, "show", "--value", "--property=MainPID", unit],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=START_TIMEOUT_S,
        check=False,
        env=user_bus(),
    )
    pid = done.stdout.strip()
    return int(pid) if pid.isdigit() else 0


def quoted(text: str) -> str:
    """One word of a command line given to systemd over its bus: quoted, ``$`` kept as it is."""
    for char, safe in (("\\", "\\\\"), ('"', '\\"'), ("$", "$$")):
        text = text.replace(char, safe)
    return '"{}"'.format(text)


def env_lines(env: dict[str, str]) -> bytes:
    """An EnvironmentFile: every value quoted (systemd.exec(5))."""
    lines = []
    for name, value in env.items():
        safe = re.sub(r'([\\"$`])', r"\\\1", value)
        lines.append('{}="{}"\n'.format(name, safe))
    return "".join(lines).encode("utf-8", "surrogateescape")


VERBS: Verbs = {"launch": launch}
