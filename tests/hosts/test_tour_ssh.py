"""The tour in the console over a real sshd: first contact, the loop by keys, a sane terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.functional.console.tmux import require_tmux
from tests.rig.sshd import LoopbackSshd
from tests.tour import ROOT, tour

pytestmark = [pytest.mark.hosts, pytest.mark.server]
SshdFactory = Callable[..., LoopbackSshd]

BASHRC = b"""\
echo "Welcome to the cluster"; printf '\\377\\376\\033]52;c;AAAA\\007\\r\\n'
for i in $(seq 300); do echo "* motd $i *"; done
echo "and to stderr" >&2
"""


@pytest.fixture(scope="module", autouse=True)
def _tmux() -> None:
    require_tmux()


def login(server: LoopbackSshd, command: str) -> bytes:
    """What a plain login prints."""
    argv = ["ssh", "-F", "none", "-p", str(server.port), "-i", str(server.key.path),
            "-o", f"UserKnownHostsFile={server.known_hosts}", server.address, command]  # fmt: skip
    return subprocess.run(argv, check=True, capture_output=True, timeout=60).stdout


def fingerprint(server: LoopbackSshd) -> str:
    """Of the host's key, by OpenSSH's own word."""
    argv = ["ssh-keygen", "-lf", str(server.host_key.path)]
    ran = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60)
    return ran.stdout.split()[1]


@pytest.mark.parametrize("noise", [b"", BASHRC], ids=["plain", "noisy"])
def test_the_tour_over_ssh(noise: bytes, tmp_path: Path, sshd_factory: SshdFactory) -> None:
    """The noisy login is bash's own: it reads ``.bashrc`` for whatever comes in by ssh."""
    home, state, known = tmp_path / "home", tmp_path / "far", tmp_path / "known_hosts"
    home.mkdir()
    (home / ".bashrc").write_bytes(noise)
    sets = f"SetEnv HOME={home} SPECOPS_STATE_DIR={state}"
    server = sshd_factory(config_lines=(sets,))
    seen = login(server, "echo $HOME")
    assert seen.endswith(f"{home}\n".encode())
    assert (b"motd 300" in seen) == bool(noise), "the login shell of whoever runs this is not bash"
    host = json.dumps({
        "address": server.address, "port": server.port, "user": server.user,
        "python": sys.executable, "identity_files": [str(server.key.path)],
        "known_hosts": str(known),
    })  # fmt: skip
    width, height = (200, 50) if noise else (80, 24)
    with tour(
        tmp_path, width, height, host=host, state=state,
        server=f", env: {{PYTHONPATH: {ROOT}}}",
        env={"HOME": str(tmp_path), "SSH_AUTH_SOCK": ""},
    ) as console:  # fmt: skip
        console.until("here: first contact", fingerprint(server), "[ Do not connect ]")
        assert not known.exists() or server.host_key.public.split()[1] not in known.read_text()
        console.press("y")
        pid = console.whole_loop()
        assert server.host_key.public.split()[1] in known.read_text()
        assert Path(f"/proc/{pid}").exists()
        console.stop()
        assert not Path(f"/proc/{pid}").exists()
        console.leave()
