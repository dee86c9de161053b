"""``specops config``: which file, is it right, a first one."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from tests.functional.cli.conftest import Command

DATA = Path(__file__).parents[2] / "data"


def test_init_writes_a_file_that_is_valid_and_never_over_one(specops: Command) -> None:
    target = specops.folder / "new" / "hosts.yaml"
    made = specops("config", "init", str(target), "--json")
    assert made.code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    valid = specops("config", "validate", "--hosts", str(target), "--json")
    assert valid.code == 0
    assert valid.json["servers"] == 1
    assert specops("config", "validate", str(target)).out == (
        specops("config", "validate", "--hosts", str(target)).out
    )
    before = target.read_bytes()
    assert specops("config", "init", str(target)).code == 2
    assert target.read_bytes() == before


def test_init_says_that_a_nearer_file_comes_first(specops: Command) -> None:
    ran = specops("config", "init")
    assert ran.code == 0
    assert ran.err == "note: ./hosts.yaml comes first here\n"
    specops.hosts.unlink()
    assert specops("config", "init", "hosts.yaml", "--json").json["note"] == ""


def test_the_file_in_use_is_named_and_one_of_others_passed_over(specops: Command) -> None:
    assert specops("config", "path", "--json").json["hosts"] == str(specops.hosts)
    specops.hosts.chmod(0o666)
    passed = specops("config", "path", "--json").json
    assert passed["hosts"] != str(specops.hosts)
    assert "writable by others" in passed["note"]


def test_an_unknown_preset_and_a_slip_name_the_likely_word(specops: Command) -> None:
    specops.write("hosts:\n  here: {transport: local}\nservers:\n"
                  "  one: {host: here, engine: bundled, speculative: eagle3-3stp}\n")  # fmt: skip
    error = specops("config", "validate", "--json")
    assert error.code == 2
    assert error.json["error"]["place"].endswith("hosts.yaml:4:38")
    assert "servers.one.speculative" in error.json["error"]["message"]
    assert "eagle3-3step" in error.json["error"]["hint"]
    specops.write(
        "hosts:\n  here: {transport: local}\nservers:\n  one: {host: here, engin: sglang}\n"
    )
    error = specops("config", "validate", "--json")
    assert error.json["error"]["place"].endswith("hosts.yaml:4:21")
    assert "engine" in error.json["error"]["hint"]


SEVERAL = sorted((DATA / "config/several").glob("*.yaml"))


@pytest.mark.parametrize("case", SEVERAL, ids=lambda path: path.stem)
def test_all_mistakes_of_a_file_are_told_each_with_its_place(case: Path, specops: Command) -> None:
    """The first lines of a case are its mistakes: line and column, then texts of the error."""
    specops.write(case.read_text())
    wanted = [row[3:].split(" | ") for row in case.read_text().splitlines() if row[:2] == "#!"]
    ran = specops("config", "validate")
    *told, count = ran.err.splitlines()
    assert ran.code == 2
    assert ran.out == ""
    assert len(told) == len(wanted), ran.err
    assert count == f"specops: {len(wanted)} mistakes"
    for row, (place_and_text, *parts) in zip(told, wanted, strict=True):
        assert row.startswith("specops: ")
        assert f"hosts.yaml:{place_and_text}" in row
        for part in parts:
            assert part in row
    document = specops("config", "validate", "--json").json
    assert document["error"] == document["errors"][0]
    assert len(document["errors"]) == len(wanted)
    assert all(one["message"] for one in document["errors"])


def test_a_broken_preset_does_not_hide_a_mistake_of_hosts_yaml(specops: Command) -> None:
    specops.write("hosts:\n  here: {transprot: local}\n")
    folder = specops.folder / "presets" / "nccl"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("kind: nccl\ndescription: x\nflaggs: {}\nevn: {}\n")
    ran = specops("config", "validate", str(specops.hosts))
    assert ran.code == 2
    assert "hosts.yaml:2:10: hosts.here.transprot" in ran.err
    assert "mine.yaml:3:1: flaggs" in ran.err
    assert "mine.yaml:4:1: evn" in ran.err


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("theme: purpl", 1, ("theme: no theme 'purpl'", "dark")),
        ("keys:\n  quit: Q\n  frob: x", 3, ("keys.frob: no action 'frob'",)),
        ("keys:\n  quit: l", 2, ("keys.quit: key l is both", "another key")),
        ("keys: {relanch: X}", 1, ("did you mean 'relaunch'?",)),
        ('keys: {relaunch: "notakey"}', 1, ("keys.relaunch: 'notakey' is not a key", "such as f2")),
        ('keys: {relaunch: "X,ctrl+shfit"}', 1, ("'ctrl+shfit' is not a key",)),
        ('keys: {follow: "f,/"}', 1, ("key / is both",)),
    ],
)
def test_what_the_console_would_refuse_is_refused_with_its_line(
    specops: Command, text: str, line: int, parts: tuple[str, ...]
) -> None:
    specops.write(f"{text}\nhosts:\n  here: {{transport: local}}\n")
    ran = specops("config", "validate")
    assert ran.code == 2
    assert f"hosts.yaml:{line}:" in ran.err
    for part in parts:
        assert part in ran.err


ROOT = Path(__file__).parents[3]
EXAMPLES = [
    found
    for file in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    for found in re.findall(r"`(keys: \{[^`]*\}|notify: \{[^`]*\})`", file.read_text())
]


@pytest.mark.parametrize("example", [*EXAMPLES, "keys: {relaunch: '$', copy: 'percent_sign,f4'}"])
def test_examples_of_the_documents_are_taken(example: str, specops: Command) -> None:
    assert any("follow" in one for one in EXAMPLES), "the one of docs/keys.md is among them"
    specops.write(f"{example}\nhosts:\n  here: {{transport: local}}\n")
    ran = specops("config", "validate")
    assert ran.code == 0, ran.err


def test_themes_and_keys_that_the_console_takes_are_good(specops: Command) -> None:
    for theme in ("dark", "16", "specops-light", "nord"):
        specops.write(
            f"theme: {theme}\nkeys: {{relaunch: X}}\nhosts: {{a: {{transport: local}}}}\n"
        )
        assert specops("config", "validate").code == 0, theme


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("sh /x/n.sh", 0, ""), ("[sh, /x/n.sh]", 0, ""),
        ("nowhere-to-be-found x", 0, "2:3: notify.command: 'nowhere-to-be-found' is no program"),
        ("sh '/x", 2, "2:12: notify.command: is no command line"),
    ],
)  # fmt: skip
def test_a_notify_command_is_cut_into_words_and_looked_for(
    command: str, code: int, told: str, specops: Command
) -> None:
    specops.write(f"notify:\n  command: {command}\nhosts:\n  here: {{transport: local}}\n")
    ran = specops("config", "validate")
    assert ran.code == code
    assert told in ran.err
    assert bool(told) is bool(ran.err)


def test_two_servers_on_one_port_of_a_host_are_warned_of(specops: Command) -> None:
    hosts = "hosts: {a: {transport: local}, b: {transport: local}}\nservers:\n"
    server = "  {}: {{host: {}, engine: bundled, port: {}, bind: {}}}\n"
    one = server.format("one", "a", 1234, "127.0.0.1")
    for name, host, port, bind, warned in (
        ("two", "a", 1234, "127.0.0.1", True),
        ("two", "a", 1234, "0.0.0.0", True),
        ("two", "a", 1234, "127.0.0.2", False),
        ("two", "a", 1235, "127.0.0.1", False),
        ("two", "b", 1234, "127.0.0.1", False),
    ):
        specops.write(hosts + one + server.format(name, host, port, bind))
        ran = specops("config", "validate", "--json")
        assert ran.code == 0
        told = any("hosts.yaml:4:" in text and "two and one both use port 1234 of a" in text
                   for text in ran.json["warnings"])  # fmt: skip
        assert told is warned, (name, host, port, bind)


def test_secrets_are_not_printed(specops: Command) -> None:
    specops.write("hosts:\n  here: {transport: local}\nservers:\n"
                  "  one: {host: here, engine: bundled,\n"
                  "        env: {HF_TOKEN: hf_abcdefghijklmnopqrst}}\n")  # fmt: skip
    ran = specops("config", "print")
    assert ran.code == 0
    assert "HF_TOKEN" in ran.out
    assert "hf_abc" not in ran.out


def test_init_from_ssh(specops: Command) -> None:
    specops.env["HOME"] = str(specops.folder)
    target = specops.folder / "mine.yaml"
    assert "No such file" in specops("config", "init", str(target), "--from-ssh").err
    assert not target.exists()
    (specops.folder / ".ssh").mkdir()
    (specops.folder / ".ssh" / "config").write_text(
        "Host gpu1\n  HostName gpu1.example\n  User ops\nInclude more.d/*\nHost *\n  Port 2200\n"
    )
    (specops.folder / ".ssh" / "more.d").mkdir()
    (specops.folder / ".ssh" / "more.d" / "a").write_text("Host gpu2\n  User root\n")
    assert specops("config", "init", str(target), "--from-ssh").code == 0
    assert specops("config", "validate", "--hosts", str(target)).code == 0
    hosts = specops("config", "print", "--json", "--hosts", str(target)).json["hosts"]
    assert {(h["name"], h["address"], h["user"], h["port"]) for h in hosts.values()} == {
        ("gpu1", "gpu1.example", "ops", 2200), ("gpu2", "gpu2", "root", 2200),
    }  # fmt: skip
    assert target.stat().st_mode & 0o777 == 0o600
    before = target.read_text()
    assert specops("config", "init", str(target), "--from-ssh").code == 2
    assert target.read_text() == before, "never over one that exists"
    assert [p.name for p in specops.folder.glob(".mine*")] == [], "and nothing lies about"


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "hosts:\n", "hosts: {}\n"])
def test_a_file_without_hosts_is_said_to_manage_nothing(content: str, specops: Command) -> None:
    specops.write(content)
    ran = specops("config", "validate", "--json")
    assert ran.code == 0
    assert any("names no host: nothing is managed" in text for text in ran.json["warnings"])


SECRETS = sorted((DATA / "config/secrets").glob("*.yaml"))


@pytest.mark.parametrize("case", SECRETS, ids=lambda path: path.stem)
def test_secrets_in_plain_text_are_named_with_the_way_on_and_never_shown(
    case: Path, specops: Command
) -> None:
    """The first line of a case: exit code, then texts that are told; secrets hold `5ecret`."""
    text = case.read_text()
    code, *parts = text.splitlines()[0].removeprefix("# ").split(" | ")
    specops.write(text)
    ran = specops("config", "validate")
    assert ran.code == int(code), ran.err
    for part in parts:
        assert part in ran.err
    assert bool(parts) is bool(ran.err)
    assert "5ecret" not in ran.err + ran.out


def test_a_secret_in_a_preset_is_named(specops: Command) -> None:
    folder = specops.folder / "config" / "specops" / "presets" / "server"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "kind: server\ndescription: x\nenv: {HF_TOKEN: hf_5ecret5ecret5ecret5ecret}\n"
    )
    ran = specops("config", "validate")
    assert ran.code == 2
    assert "mine.yaml: env.HF_TOKEN: a secret in plain text (write secret:HF_TOKEN" in ran.err
    assert "5ecret" not in ran.err
