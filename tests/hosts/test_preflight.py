"""Preflight of a launch on a real host over SSH: what only the host can tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.functional.cli.conftest import Command
from tests.rig.nspawn import NspawnHost
from tests.unit.preflight.cases import models

pytestmark = [pytest.mark.hosts]

SERVER = """\
hosts:
  box: {{address: {host.address}, python: {host.python}, identity_files: [{host.key.path}],
         known_hosts: {host.known_hosts}}}
servers:
  one: {{host: box, engine: sglang, python: {host.python}, model: {folder}/target,
         draft: {folder}/draft, port: 31777, args: {{speculative-algorithm: EAGLE3,
         speculative-num-steps: 3, speculative-eagle-topk: 1, speculative-num-draft-tokens: 4,
         max-running-requests: 8, device: cuda}}, env: {{{env}}}}}
"""
FAULTY = (
    "NCCL_P2P_LEVLE: SYS, NCCL_ALGO: Rings, http_proxy: 'http://10.0.0.9:3128', "
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT: '1'"
)


def findings(command: Command, host: NspawnHost, env: str, code: int) -> dict[str, str]:
    """What preflight says of the server with these variables, rule to severity."""
    command.write(SERVER.format(host=host, folder="/srv/pair", env=env))
    ran = command("preflight", "one", "--json")
    assert ran.code == code, ran.out + ran.err
    return {item["rule"]: item["severity"] for item in ran.json["findings"]}


def test_what_only_the_host_can_tell(tmp_path: Path, python_host: NspawnHost) -> None:
    tmp_path.chmod(0o700)
    command = Command(tmp_path)
    host = python_host
    host.write("/srv/pair/target/config.json", json.dumps(models()["llama-tiny-4"]))
    host.write("/srv/pair/draft/config.json", json.dumps(models()["draft-tiny-ids"]))
    host.write("/srv/pair/target/model.safetensors", "version https://git-lfs.github.com/spec/v1")
    host.write("/etc/profile.d/cuda.sh", "export CUDA_HOME=/opt/cuda HF_TOKEN=hf_not_to_be_seen\n")
    found = findings(command, host, FAULTY, code=5)
    wanted = {
        "shard-damaged": "error",  # of the target: a pointer instead of the file
        "weights-missing": "error",  # of the draft
        "nccl-unknown": "warning",
        "nccl-value": "warning",
        "proxy-warmup": "warning",
        "env-unknown": "warning",
        "env-login-missing": "info",
    }
    assert {rule: found.get(rule) for rule in wanted} == wanted
    assert "env-login-differs" not in found, "a PATH of its own is no difference"

    good = "NCCL_P2P_LEVEL: SYS, NCCL_ALGO: Ring, CUDA_HOME: /opt/cuda"
    left = findings(command, host, good, code=5)
    assert not set(left) & {*wanted} - {"shard-damaged", "weights-missing", "env-login-missing"}
