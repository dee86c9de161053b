"""What ~/.ssh/config proposes, and that hosts.yaml takes it."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from console.config import load
from console.config.sshconfig import document, proposals

TEXT = """\
User everywhere
Host bastion
    HostName bastion.example
    Port=2222
Host gpu1 gpu2
    HostName %h.example
    ProxyJump bastion
    IdentityFile ~/.ssh/gpu
Host far
    ProxyJump me@elsewhere:22
Host odd
    ProxyCommand nc -X 5 %h %p
Host *.internal !secret.internal
    User root
Host node.internal secret.internal
Match exec "touch /tmp/never"
    User nobody
Host "white space"
Host *
    User late
    Port 2200
"""


def test_blocks_names_and_the_first_value_wins(tmp_path: Path) -> None:
    found = {one.name: one for one in proposals(TEXT, "op")}
    assert found["bastion"].values == {
        "address": "bastion.example", "user": "everywhere", "port": 2222,
    }  # fmt: skip
    assert found["gpu2"].values == {
        "address": "gpu2.example", "user": "everywhere", "port": 2200, "jump": "bastion",
        "identity_files": ["~/.ssh/gpu"],
    }  # fmt: skip
    for name in ("far", "odd"):
        assert found[name].values == {
            "address": name, "transport": "openssh", "user": "everywhere",
        }  # fmt: skip
    assert found["white space"].why_not
    assert not any("*" in name for name in found)

    path = tmp_path / "hosts.yaml"
    path.write_text(document(list(found.values())))
    hosts = load(path).hosts
    assert set(hosts) == set(found) - {"white space"}
    assert hosts["gpu1"].jump == "bastion"
    assert hosts["gpu1"].port == 2200


def test_patterns_and_negation() -> None:
    text = TEXT.removeprefix("User everywhere\n")
    found = {one.name: one.values for one in proposals(text, "op")}
    assert found["node.internal"]["user"] == "root"
    assert found["secret.internal"]["user"] == "late"
    assert proposals("", "op") == ()


@given(st.text(alphabet="Host \n*!?=%\"#:{}[]&'abc1User", max_size=120))
def test_whatever_is_in_it_gives_a_valid_file(text: str) -> None:
    import tempfile

    found = proposals(text, "op")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(document(found))
        file.flush()
        assert set(load(Path(file.name)).hosts) == {o.name for o in found if not o.why_not}
