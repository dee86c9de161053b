"""Hostile process names, kept variables, owners of cgroups, tables of sockets."""

from __future__ import annotations

import pytest

from console.agent import machine, ports, proc

REST = b" S 17 18 19 0 -1 4194560 1 2 3 4 100 23 0 0 20 0 5 0 12345 1000 77 1 2 3"


@pytest.mark.parametrize(
    "comm",
    [b"python3", b") R 1 (", b"a) S 0 (b", b"\x1b]0;x\x07", b"line\nbreak", b"", b"[/red]",
     "\u202e" .encode() * 5, b"\xff\xfe", b"((((", b"))))"],
)  # fmt: skip
def test_stat_is_parsed_from_the_last_bracket(comm: bytes) -> None:
    seen = proc.parse_stat(b"4711 (" + comm + b")" + REST)
    assert seen.comm == comm
    assert (seen.state, seen.ppid, seen.pgid, seen.sid) == ("S", 17, 18, 19)
    assert (seen.cpu_ticks, seen.threads, seen.start_ticks, seen.rss_pages) == (123, 5, 12345, 77)
    assert not seen.kernel_thread


@pytest.mark.parametrize("data", [b"", b"4711 (x", b"4711 (x) S 1", b")("])
def test_not_a_stat_line(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a stat line"):
        proc.parse_stat(data)


def test_only_listed_variables_leave_the_host() -> None:
    env = (
        b"SPECOPS_RUN_ID=r1\0HOME=/root\0NCCL_ALGO=Ring\0HF_TOKEN=hf_x\0SGLANG_API_KEY=k\0"
        b"VLLM_AUTH=x\0AWS_SECRET_ACCESS_KEY=y\0WORLD_SIZE=8\0broken\0=x\0SGLANG_X=a=b\0"
    )
    assert proc.kept_variables(env) == {
        "SPECOPS_RUN_ID": "r1",
        "NCCL_ALGO": "Ring",
        "WORLD_SIZE": "8",
        "SGLANG_X": "a=b",
    }


HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("cgroup", "unit", "container"),
    [
        ("/system.slice/k26.service", "k26.service", None),
        ("/user.slice/user-0.slice/session-3.scope", "session-3.scope", None),
        (f"/system.slice/docker-{HEX}.scope", f"docker-{HEX}.scope", HEX[:12]),
        (f"/docker/{HEX}", None, HEX[:12]),
        ("/lxc/129/ns/system.slice/ssh.service", "ssh.service", "129"),
        ("/lxc.payload.web/init.scope", "init.scope", "web"),
        ("/kubepods.slice/kubepods-pod1.slice/x", None, "kubepods"),
        ("/", None, None),
    ],
)
def test_owner_of_a_cgroup(cgroup: str, unit: str | None, container: str | None) -> None:
    assert proc.owner_of_cgroup(cgroup) == (unit, container)


def test_cgroup_of_both_versions() -> None:
    assert proc.cgroup_path(b"0::/system.slice/a.service\n") == "/system.slice/a.service"
    mixed = b"12:devices:/x\n1:name=systemd:/system.slice/b.service\n0::/\n"
    assert proc.cgroup_path(mixed) == "/system.slice/b.service"
    assert proc.cgroup_path(b"") == ""


def test_sockets() -> None:
    table = (
        b"  sl  local_address rem_address   st\n"
        b"   0: 0100007F:7530 00000000:0000 0A 00000000:00000000 00:0 0 0 0 555 1\n"
        b"   1: 0100007F:7530 0100007F:9999 01 00000000:00000000 00:0 0 0 0 556 1\n"
        b"   2: 0100007F:7531 0100007F:9999 06 00000000:00000000 00:0 0 0 0 0 1\n"
        b"short\n"
    )
    found = ports.Sockets({}, {})
    ports.parse(table, found)
    assert found == ({555: 30000}, {556: 30000})


def test_cpu_times_leave_waiting_out() -> None:
    assert machine.cpu_times(b"cpu  10 1 5 100 20 1 1 2 3 4\ncpu0 1\n") == (20, 140)
    assert machine.cpu_times(b"intr 1\n") is None
