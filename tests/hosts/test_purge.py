"""``doctor --purge`` on a real Debian host: systemd's traces go, and only ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.functional.cli.conftest import Command
from tests.rig.nspawn import NspawnHost

pytestmark = pytest.mark.hosts
OURS = "/etc/systemd/system/k26.service.d/specops.conf"
BESIDE = "/etc/systemd/system/k27.service.d"
THEIRS = "/etc/systemd/system/theirs.service.d/specops.conf"
USERS = "/root/.config/systemd/user/k28.service.d/specops.conf"
DROP_IN = "# Written by specops for run 1. …\n[Service]\nExecStart=\nExecStart=/bin/sleep 2\n"
UNIT = "[Service]\nExecStart=/bin/sleep 1\n"
FAILING = "[Service]\nExecStart=/bin/false\n"


def failed(box: NspawnHost) -> set[str]:
    """The units that systemd remembers as failed."""
    words = ["systemctl", "list-units", "--state=failed", "--plain", "--no-legend", "--no-pager"]
    return {line.split()[0].decode() for line in box.run(words).stdout.splitlines()}


def exists(box: NspawnHost, path: str) -> bool:
    return box.run(["test", "-e", path], check=False).returncode == 0


def test_drop_ins_and_failed_launches_go_and_nothing_else(
    nspawn_host: NspawnHost, tmp_path: Path
) -> None:
    box = nspawn_host
    tmp_path.chmod(0o700)
    command = Command(tmp_path)
    keys = {
        "address": box.address, "identity_files": [str(box.key.path)],
        "known_hosts": str(box.known_hosts),
    }  # fmt: skip
    command.write(json.dumps({"hosts": {"box": keys}}))
    box.write("/etc/systemd/system/k26.service", UNIT)
    for path in (OURS, f"{BESIDE}/specops.conf", USERS):
        box.write(path, DROP_IN)
    box.write(f"{BESIDE}/local.conf", "[Service]\nNice=1\n")
    box.write(THEIRS, "[Service]\nNice=5\n")
    box.write("/etc/systemd/system/specops-exporter.service", FAILING)
    box.run(["systemctl", "daemon-reload"])
    box.run(["systemctl", "start", "specops-exporter"], check=False)
    box.run(["systemd-run", "--quiet", "--unit=specops-0badcafe.service", "/bin/false"])
    box.run(["sh", "-c", "until systemctl is-failed -q specops-0badcafe; do sleep 0.1; done"])
    assert failed(box) >= {"specops-0badcafe.service", "specops-exporter.service"}

    shown = command("doctor", "--purge", "box", "--dry-run", "--json")
    assert shown.code == 1, shown.err
    wanted = {OURS, f"{BESIDE}/specops.conf", USERS, "specops-0badcafe.service"}
    assert wanted <= set(shown.json["found"])
    assert exists(box, OURS)
    assert command("doctor", "--purge", "box").code == 4

    done = command("doctor", "--purge", "box", "--yes", "--json")
    assert done.code == 0, (done.out, done.err)
    assert wanted <= set(done.json["removed"])
    assert THEIRS in done.json["left"]
    for path in (OURS, f"{BESIDE}/specops.conf", USERS, str(Path(OURS).parent)):
        assert not exists(box, path), path
    assert exists(box, f"{BESIDE}/local.conf")
    assert exists(box, THEIRS)
    assert "specops-0badcafe.service" not in failed(box)
    assert "specops-exporter.service" in failed(box)
    begins = box.run(["systemctl", "show", "k26", "-p", "ExecStart"]).stdout
    assert b"/bin/sleep 1" in begins
    assert not exists(box, "/var/lib/specops")

    again = command("doctor", "--purge", "box", "--dry-run", "--json")
    assert (again.code, again.json["found"]) == (0, [])
