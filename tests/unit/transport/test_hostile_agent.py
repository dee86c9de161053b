"""A compromised host may only hurt its own row: what does not fit is one clear error."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest

from console.errors import AgentError
from console.model import Hello
from console.transport import decode, names, plain

HELLO = Hello("1", "3.8", "h", 0, "root", 9, "boot", "ns", True, "6", True, "/s", False, 100, 1.0)
ROW: dict[str, Any] = {
    "pid": 7, "start": 100, "ppid": 1, "pgid": 7, "sid": 7, "uid": 0, "user": "root", "state": "S",
    "comm": "x", "threads": 1, "ticks": 5, "rss": 4096, "argv": ["x"], "env": {}, "cgroup": "/",
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "boot_id": "boot", "time": 1.0, "uptime": 11.0, "uid": 0, "listening": [[80, 7]],
    "protected": [1], "complete": True, "cpu": None, "gpus": [],
    "processes": {"whole": True, "rows": [ROW], "gone": []},
}  # fmt: skip


def build(value: Any) -> Any:
    builder = decode.SnapshotBuilder(HELLO)
    return decode.checked("h", lambda: builder.build(value))


def test_a_good_answer() -> None:
    snapshot = build(copy.deepcopy(ANSWER))
    assert snapshot.processes[0].age_s == 10.0
    assert snapshot.listening == {80: 7}


@pytest.mark.parametrize(
    ("field", "value"),
    [("pid", -1), ("pid", 0.5), ("pid", True), ("pid", 1 << 23), ("pid", "7"), ("start", -5),
     ("comm", 5), ("argv", [1]), ("env", []), ("threads", None), ("ppid", -1),
     ("tasks", {"x": "S"}),
     ("listening", [70000]), ("uid", "root")],
)  # fmt: skip
def test_bad_rows(field: str, value: object) -> None:
    answer = copy.deepcopy(ANSWER)
    answer["processes"]["rows"][0][field] = value
    with pytest.raises(AgentError, match="does not fit"):
        build(answer)


@pytest.mark.parametrize("value", [None, [], 7, {}, {"processes": []}, {**ANSWER, "listening": 3}])
def test_bad_answers(value: object) -> None:
    with pytest.raises(AgentError, match="does not fit"):
        build(value)


def test_a_reused_pid_keeps_nothing_of_the_old_process() -> None:
    builder = decode.SnapshotBuilder(HELLO)
    old = copy.deepcopy(ANSWER)
    old["processes"]["rows"][0]["env"] = {"SPECOPS_RUN_ID": "r"}
    assert builder.build(old).processes[0].run_id == "r"
    fresh = copy.deepcopy(ANSWER)
    fresh["processes"] = {"whole": False, "gone": [], "rows": [{**ROW, "start": 200}]}
    del fresh["processes"]["rows"][0]["env"]
    assert builder.build(fresh).processes[0].run_id is None


def test_a_drivers_pid_in_a_container_is_nobodys() -> None:
    answer = copy.deepcopy(ANSWER)
    user = {"pid": 7, "memory_mib": 100.0, "kind": "compute"}
    answer["gpus"] = [{"index": 0, "uuid": "u", "name": "n", "processes": [user]}]
    assert build(answer).processes[0].gpu_memory_mib == {0: 100.0}
    inside = dataclasses.replace(HELLO, init_namespace=False)
    seen = decode.SnapshotBuilder(inside).build(answer)
    assert seen.processes[0].gpu_memory_mib == {}


@pytest.mark.parametrize("name", ["a", "a.b-c", "10.0.0.1", "::1", "fe80::1%eth0", "x_y.example."])
def test_host_names(name: str) -> None:
    assert names.valid_host(name)


@pytest.mark.parametrize(
    "name",
    ["", "-oProxyCommand=id", "$(id)", "a;id", "x\ny", "a" * 64 + ".x", "a" * 300, "ünï", "[::1]",
     "::1%;id", "a b", "a..b", "a/b", "a@b"],
)  # fmt: skip
def test_not_host_names(name: str) -> None:
    assert not names.valid_host(name)


def test_ps() -> None:
    output = (
        b"  7   1   7   7    0 root  Ssl  10  3 4096 python3   python3 -m sglang \xff\n"
        b"  9   2   0   0    0 root  I    10  1    0 kworker   [kworker]\n"
        b"garbage\n\n"
    )
    rows = plain.parse_ps(output, 1000.0)
    assert [(row["pid"], row["state"], row["start"]) for row in rows] == [(7, "Ssl", 99000)]
    assert rows[0]["argv"] == ["python3", "-m", "sglang", "\\xff"]
