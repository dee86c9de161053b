"""Which cgroups bind a family: those made for its run, not those that a console runs in."""

from dataclasses import replace

from console.zombies.family import own_cgroup
from tests.unit.zombies.build import process


def test_a_cgroup_is_a_runs_own_by_the_runs_id() -> None:
    one = process({"pid": 7, "line": "sglang::scheduler", "run": "ab12cd34"})
    at = "/system.slice/specops-{}.service".format
    assert own_cgroup(replace(one, cgroup=at("ab12cd34")))
    assert own_cgroup(replace(one, cgroup="/user.slice/specops-ab12cd34.scope"))
    assert not own_cgroup(replace(one, cgroup=at("exporter")))
    assert not own_cgroup(replace(one, cgroup=at("ffffffff")))
    assert not own_cgroup(replace(one, run_id=None, cgroup=at("ab12cd34")))
