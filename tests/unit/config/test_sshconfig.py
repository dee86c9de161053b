"""What ~/.ssh/config proposes, and that hosts.yaml takes it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.config import load
from console.config.sshconfig import document, proposals, with_jumps

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


def test_included_files_count_where_they_stand() -> None:
    files = {
        "one": ["Host a\n  User first\nHost b\n  HostName b.example\n"],
        "inner": ["User inside\nHost c\n  Port 2222\n"],
        "loop": ["Host d\nInclude loop\n"],
    }
    text = (
        "Include one\nHost a b\n  User late\n  Include inner\n  Port 2200\nInclude loop missing\n"
    )
    found = {one.name: one.values for one in proposals(text, "op", lambda w: files.get(w, []))}
    assert found["a"] == {"address": "a", "user": "first", "port": 2200}
    assert found["b"] == {"address": "b.example", "user": "late", "port": 2200}
    assert found["c"] == {"address": "c", "user": "op"}, (
        "a block within a block needs both to match"
    )
    assert found["d"]["user"] == "op"


def test_a_jump_host_comes_along_and_one_that_cannot_stand_in_the_file_is_left_to_ssh() -> None:
    text = (
        "Host gate\n  ProxyJump outer\nHost outer\nHost gpu\n  ProxyJump gate\n"
        "Host bad\n  User not/plain\nHost behind\n  ProxyJump bad\nHost alone\n"
    )
    found = proposals(text, "op")
    assert [one.name for one in with_jumps(found, ["gpu"])] == ["gate", "outer", "gpu"]
    behind = next(one for one in found if one.name == "behind")
    assert behind.values == {"address": "behind", "transport": "openssh", "user": "op"}


@pytest.mark.parametrize("demo", [True, False])
def test_the_file_holds_what_was_chosen(tmp_path: Path, demo: bool) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(document(proposals("Host gpu1\n  Port 2222\n", "op"), demo=demo))
    read = load(path)
    assert set(read.hosts) == ({"gpu1", "demo"} if demo else {"gpu1"})
    assert list(read.servers) == (["demo-eagle3"] if demo else [])
