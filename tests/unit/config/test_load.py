from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from console.config import load, shipped_hosts
from console.config.paths import choose
from console.errors import ConfigError, UsageError
from console.model import Outer, Runner

ROOT = Path(__file__).parents[3]
CASES = sorted((ROOT / "tests/data/config").glob("*.yaml"))


def write(folder: Path, text: str) -> Path:
    path = folder / "hosts.yaml"
    path.write_text(text)
    path.chmod(0o644)
    return path


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_every_refusal_names_place_and_likely_word(case: Path, tmp_path: Path) -> None:
    """The first line of a case is a comment: the line number, then texts the error must hold."""
    text = case.read_text()
    line, *parts = text.splitlines()[0].removeprefix("# ").split(" | ")
    with pytest.raises(ConfigError) as caught:
        load(write(tmp_path, text))
    assert caught.value.place.startswith(f"{tmp_path / 'hosts.yaml'}:{line}:")
    assert caught.value.others == ()
    for part in parts:
        assert part in str(caught.value)


def test_the_example_of_the_design_loads(tmp_path: Path) -> None:
    config = load(
        write(
            tmp_path,
            """
defaults: {user: ops, connect_timeout: 7}
hosts:
  demo: {transport: local}
  pve1: {address: pve1.example}
  ct129: {address: ct129.example, outer: {host: pve1, pct: 129}, labels: [pcie]}
servers:
  kimi-k25: {host: ct129, engine: sglang, model: /shared/kimi, draft: /d/4, port: 8000,
             speculative: eagle3-3step, nccl: pcie-ll-ring, log: /l/k25.log, runner: process,
             args: {tp-size: 8, mem-fraction-static: 0.88, trust-remote-code: true},
             env: {EAGLE3_PROFILE: "1"}, never_ready_after: 45 min}
  k26: {host: ct129, runner: {systemd: sglang-k26-eagle3.service}, port: 30001}
""",
        )
    )
    assert config.host("ct129").outer == Outer("pve1", pct=129)
    assert config.host("pve1").user == "ops"
    assert config.host("pve1").connect_timeout == 7
    server = config.server("kimi-k25")
    assert server.args == {"tp-size": 8, "mem-fraction-static": 0.88, "trust-remote-code": True}
    assert server.never_ready_after == 2700
    assert config.server("k26").runner == Runner("systemd", unit="sglang-k26-eagle3.service")
    with pytest.raises(UsageError, match="did you mean 'kimi-k25'"):
        config.server("kimi-k26x")
    with pytest.raises(UsageError, match="did you mean 'ct129'"):
        config.host("ct192")


def test_shipped_and_example_agree_on_the_demo() -> None:
    shipped, example = load(shipped_hosts()), load(ROOT / "hosts.yaml")
    assert shipped.hosts == example.hosts
    assert shipped.servers == example.servers


def test_a_file_others_can_write_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "xdg"))
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, "hosts: {a: {transport: local}}")
    assert choose(None).path == path
    path.chmod(0o666)
    chosen = choose(None)
    assert chosen.path == shipped_hosts()
    assert "writable by others" in chosen.note
    with pytest.raises(ConfigError, match="writable by everybody"):
        load(path)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to give a file away")
def test_a_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    path = write(tmp_path, "hosts: {}")
    os.chown(path, 12345, 12345)
    with pytest.raises(ConfigError, match="uid 12345"):
        load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("address", "-oProxyCommand=id"),
        ("address", "a;id"),
        ("address", "$(id)"),
        ("address", "x" * 300),
        ("address", "ünï"),
        ("user", "root -l"),
        ("user", "-x"),
        ("port", 0),
        ("port", 65536),
        ("port", "22;id"),
    ],
)
def test_hostile_addresses_are_refused(key: str, value: object, tmp_path: Path) -> None:
    body = {"hosts": {"h": {"address": "ok.example", key: value}}}
    with pytest.raises(ConfigError, match=f"hosts.h.{key}"):
        load(write(tmp_path, yaml.safe_dump(body)))


@pytest.mark.parametrize("address", ["::1", "[::1]", "192.0.2.7", "a-b.example"])
def test_addresses_that_are_taken(address: str, tmp_path: Path) -> None:
    config = load(write(tmp_path, yaml.safe_dump({"hosts": {"h": {"address": address}}})))
    assert config.host("h").address == address.strip("[]")


def test_alias_bombs_and_depth_end_in_one_error(tmp_path: Path) -> None:
    deep = "hosts: " + "{a: " * 2000 + "1" + "}" * 2000
    with pytest.raises(ConfigError):
        load(write(tmp_path, deep))
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"hosts: \xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8"):
        load(bad)
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "missing.yaml")
