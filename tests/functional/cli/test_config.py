"""``specops config``: which file, is it right, a first one."""

from __future__ import annotations

import stat

from tests.functional.cli.conftest import Command


def test_init_writes_a_file_that_is_valid_and_never_over_one(specops: Command) -> None:
    target = specops.folder / "new" / "hosts.yaml"
    made = specops("config", "init", str(target), "--json")
    assert made.code == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    valid = specops("config", "validate", "--hosts", str(target), "--json")
    assert valid.code == 0
    assert valid.json["servers"] == 1
    before = target.read_bytes()
    assert specops("config", "init", str(target)).code == 2
    assert target.read_bytes() == before


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
    assert "servers.one.speculative" in error.json["error"]["place"]
    assert "eagle3-3step" in error.json["error"]["hint"]
    specops.write(
        "hosts:\n  here: {transport: local}\nservers:\n  one: {host: here, engin: sglang}\n"
    )
    error = specops("config", "validate", "--json")
    assert error.json["error"]["place"].endswith("hosts.yaml:4")
    assert "engine" in error.json["error"]["hint"]


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
