"""Rules that need facts of the host: the arithmetic, and what unknown facts lead to."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.model import Finding
from console.preflight import (
    GpuFacts,
    HostFacts,
    ModelFacts,
    PathFacts,
    ServedFacts,
    check,
    parse_command,
    wanted_paths,
)
from console.preflight.rules.environment import excludes, nccl_variables, nccl_wrong
from tests.unit.preflight.cases import model

LAUNCH = "python3 -m sglang.launch_server --model-path /m"
VERSION = "0.5.12.post1"
GIB = 1024.0


def findings(
    line: str = LAUNCH, facts: HostFacts | None = None, version: str = VERSION
) -> list[Finding]:
    return list(check(parse_command(line), facts or HostFacts(), version))


def rules(line: str = LAUNCH, facts: HostFacts | None = None) -> dict[str, str]:
    return {finding.rule: str(finding.severity) for finding in findings(line, facts)}


def gpus(*free_gib: float, total_gib: float = 80) -> tuple[GpuFacts, ...]:
    return tuple(
        GpuFacts(index, total_mib=total_gib * GIB, free_mib=free * GIB, uuid=f"GPU-{index}a")
        for index, free in enumerate(free_gib)
    )


def test_nothing_known_leads_to_nothing() -> None:
    assert findings() == []


def test_an_unknown_version_is_said() -> None:
    assert [finding.rule for finding in findings(version="")] == ["version-unknown"]


def test_the_memory_sum_is_shown() -> None:
    facts = HostFacts(gpus=gpus(79.0), target=model("llama33-70b"))
    (finding,) = [f for f in findings(LAUNCH, facts) if f.rule == "gpu-memory"]
    # 70.55e9 parameters of 2 bytes are 134,568 MiB; 0.9 of 79 GiB is 72,806 MiB.
    assert "weights 134568 MiB over 1 ranks = 134568 MiB each" in finding.message
    assert "80896 MiB free, of which 0.9 is 72806" in finding.message


def test_weights_are_counted_from_the_files_where_they_are_known() -> None:
    files = {"model-1.safetensors": 30 * 2**30, "model-1.bin": 30 * 2**30, "config.json": 1}
    facts = HostFacts(gpus=gpus(79.0), target=ModelFacts(config=None, files=files))
    assert "gpu-memory" not in rules(LAUNCH, facts)
    facts = HostFacts(gpus=gpus(20.0), target=ModelFacts(config=None, files=files))
    (finding,) = [f for f in findings(LAUNCH, facts) if f.rule == "gpu-memory"]
    assert "weights 30720 MiB" in finding.message


def test_the_holder_of_a_gpu_is_named() -> None:
    held = GpuFacts(1, free_mib=10 * GIB, total_mib=80 * GIB, holders=("python (pid 9)",))
    facts = HostFacts(gpus=(gpus(79.0)[0], held))
    (finding,) = [f for f in findings(f"{LAUNCH} --tp-size 2", facts) if f.rule != "x"]
    assert finding.rule == "gpu-unbalanced"
    assert "python (pid 9)" in finding.message


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("--tp-size 4", None),
        ("--tp-size 2 --dp-size 2", None),
        ("--tp-size 4 --dp-size 4 --enable-dp-attention", None),
        (
            "--tp-size 8 --nnodes 2 --node-rank 0 --dist-init-addr 10.0.0.1:2000",
            None,
        ),
        ("--tp-size 2 --base-gpu-id 2", None),
        ("--tp-size 2 --base-gpu-id 3", "gpu-count"),
        ("--tp-size 2 --gpu-id-step 4", "gpu-count"),
        ("--tp-size 4 --dp-size 2", "gpu-count"),
        ("--tp-size 8", "gpu-count"),
    ],
)
def test_gpus_are_counted_per_node(line: str, rule: str | None) -> None:
    found = rules(f"{LAUNCH} {line}", HostFacts(gpus=gpus(79.0, 79.0, 79.0, 79.0)))
    assert set(found) - {"x"} == ({rule} if rule else set())


def test_visible_devices_by_uuid() -> None:
    facts = HostFacts(gpus=gpus(1.0, 79.0))
    assert rules(f"CUDA_VISIBLE_DEVICES=GPU-1a {LAUNCH}", facts) == {}
    assert rules(f"CUDA_VISIBLE_DEVICES=GPU-7 {LAUNCH}", facts) == {"gpu-visible": "error"}


def test_a_cpu_is_judged_by_the_machines_memory() -> None:
    facts = HostFacts(gpus=(), memory_free_mib=1000.0, target=model("llama2-7b"))
    assert rules(f"{LAUNCH} --device cpu", facts) == {"host-memory": "error"}


def test_shards() -> None:
    index = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}
    whole = dict.fromkeys(index.values(), 100)
    complete = ModelFacts(config={}, files=whole, index=index, expected=whole)
    assert rules(LAUNCH, HostFacts(target=complete)) == {}
    half = ModelFacts(config={}, files={"model-00001-of-00002.safetensors": 100}, index=index)
    assert rules(LAUNCH, HostFacts(target=half)) == {"shards-missing": "error"}
    no_index = ModelFacts(config={}, files={"model-00001-of-00002.safetensors": 100})
    assert rules(LAUNCH, HostFacts(target=no_index)) == {"shards-missing": "error"}
    short = ModelFacts(config={}, files=whole, expected={**whole, index["b"]: 200})
    (finding,) = findings(LAUNCH, HostFacts(target=short))
    assert finding.rule == "shard-size"
    assert "is 100 bytes, its header promises 200" in finding.message
    empty = ModelFacts(config={}, files={"config.json": 3})
    assert rules(LAUNCH, HostFacts(target=empty)) == {"weights-missing": "error"}
    assert rules(f"{LAUNCH} --load-format dummy", HostFacts(target=empty)) == {}


def test_a_tokenizer_lies_beside_the_weights() -> None:
    """Seen on a host: the start ends in transformers, 12 s after the launch."""

    def judged(*names: str, line: str = LAUNCH) -> dict[str, str]:
        files = dict.fromkeys(("model.safetensors", "config.json", *names), 9)
        return rules(line, HostFacts(target=ModelFacts(config={}, files=files), ports={}))

    missing = {"tokenizer-missing": "error"}
    assert judged() == missing
    assert judged("tokenizer_config.json", "special_tokens_map.json") == missing
    for name in ("tokenizer.json", "tokenizer.model", "qwen.tiktoken", "tekken.json", "vocab.json",
                 "spiece.model", "tokenization_kimi.py", "model.gguf"):  # fmt: skip
        assert judged(name) == {}, name
    assert judged(line=f"{LAUNCH} --tokenizer-path org/name") == {}
    assert judged(line=f"{LAUNCH} --skip-tokenizer-init") == {}


def test_cache_folders_are_folders() -> None:
    line = f"TRITON_CACHE_DIR=/c HF_HOME=/h {LAUNCH}"
    assert {"/c", "/h"} <= set(wanted_paths(parse_command(line), VERSION))
    new = HostFacts(paths={"/c": PathFacts(exists=False)})
    assert rules(line, new) == {}
    file = HostFacts(paths={"/c": PathFacts(exists=True, directory=False, writable=True)})
    assert rules(line, file) == {"cache-not-a-folder": "error"}
    other = HostFacts(paths={"/h": PathFacts(exists=True, directory=True, writable=False)})
    assert rules(line, other) == {"cache-unwritable": "warning"}


def test_ports() -> None:
    used = HostFacts(ports={30000: "python3 (pid 5)", 5000: "", 30235: "x"})
    assert rules(LAUNCH, used) == {"port-in-use": "error"}
    assert "python3 (pid 5)" in findings(LAUNCH, used)[0].message
    assert rules(f"{LAUNCH} --port 1", used) == {}
    assert rules(f"{LAUNCH} --port 1 --nccl-port 5000", used) == {"port-in-use": "error"}
    assert rules(f"{LAUNCH} --port 1 --nccl-port 1") == {"port-same": "error"}
    split = f"{LAUNCH} --port 30001 --tp-size 2 --dp-size 2 --enable-dp-attention"
    assert rules(split, used) == {"port-in-use": "error"}


def test_the_paths_that_are_asked_for_are_the_ones_that_are_judged() -> None:
    line = (
        "cd /work && nohup /venv/bin/python -m sglang.launch_server --model-path /m "
        "--tokenizer-path org/name --chat-template ./t.jinja > /var/log/s/a.log 2>&1 &"
    )
    wanted = wanted_paths(parse_command(line), VERSION)
    assert wanted == ("/m", "./t.jinja", "/work", "/venv/bin/python", "/var/log/s")
    for path in wanted:
        missing = HostFacts(paths={path: PathFacts(exists=False)})
        assert set(rules(line, missing)) & {"path-missing", "log-folder"}, path
    locked = HostFacts(paths={"/m": PathFacts(exists=True, readable=False)})
    assert rules(line, locked) == {"path-unreadable": "error"}
    full = HostFacts(paths={"/var/log/s": PathFacts(exists=True, free_mib=3.0)})
    assert rules(line, full) == {"disk-full": "warning"}


def test_a_small_dev_shm_matters_to_several_ranks_only() -> None:
    facts = HostFacts(shm_free_mib=10.0)
    assert rules(LAUNCH, facts) == {}
    assert rules(f"{LAUNCH} --tp-size 2", facts) == {"shm-small": "warning"}


@pytest.mark.parametrize(
    ("driver", "cuda", "refused"),
    [
        ("580.65.06", "13.0", False),
        ("575.57.08", "13.0", True),
        ("550.54.15", "12.8", False),
        ("470.57.02", "12.8", True),
        ("abc", "12.8", False),
    ],
)
def test_the_driver_against_torch(driver: str, cuda: str, refused: bool) -> None:
    found = rules(LAUNCH, HostFacts(driver=driver, torch_cuda=cuda))
    assert found == ({"driver-cuda": "error"} if refused else {})


def test_a_model_that_is_served_already() -> None:
    other = ServedFacts("chat", "/m", 30001)
    assert rules(LAUNCH, HostFacts(served=(other,))) == {"already-served": "warning"}
    replaced = ServedFacts("chat", "/m", 30001, replaced=True)
    assert rules(LAUNCH, HostFacts(served=(replaced,))) == {}


def test_login_and_launch_environments() -> None:
    facts = HostFacts(
        launch_env={"PATH": "/usr/bin", "HOME": "/root"},
        login_env={"PATH": "/venv/bin:/usr/bin", "CUDA_HOME": "/cuda", "HOME": "/root", "PS1": "$"},
    )
    assert rules(LAUNCH, facts) == {"env-login-missing": "info", "env-login-differs": "info"}
    (missing, differs) = findings(LAUNCH, facts)
    assert "CUDA_HOME" in missing.message
    assert "PS1" not in missing.message
    assert "PATH" in differs.message
    assert rules(f"CUDA_HOME=/c PATH=/x {LAUNCH}", facts) == {"env-login-differs": "info"}


def test_folders_that_no_server_needs_are_no_difference() -> None:
    """A launch from a venv, or with the interpreter in full, is not told of PATH."""
    shell = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/root/.local/bin"
    facts = HostFacts(launch_env={"PATH": "/venv/bin:/usr/bin:/bin"}, login_env={"PATH": shell})
    by_path = LAUNCH.replace("python3", "/venv/bin/python", 1)
    assert rules(by_path, facts) == {}
    assert rules(LAUNCH, facts) == {"env-login-differs": "info"}  # which python3 is found
    cuda = HostFacts(
        launch_env={"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/a:/b"},
        login_env={"PATH": "/usr/local/cuda/bin:/usr/bin", "LD_LIBRARY_PATH": "/b:/a"},
    )
    (finding,) = findings(by_path, cuda)
    assert "PATH" in finding.message
    assert "LD_LIBRARY_PATH" not in finding.message


def test_a_proxy_of_the_hosts_environment_counts_too() -> None:
    facts = HostFacts(launch_env={"HTTP_PROXY": "http://p:3128"})
    assert rules(LAUNCH, facts) == {"proxy-warmup": "warning"}
    assert rules(f"{LAUNCH} --skip-server-warmup", facts) == {}
    assert rules(f"no_proxy='*' {LAUNCH}", facts) == {}


@pytest.mark.parametrize(
    ("no_proxy", "host", "covered"),
    [
        ("localhost,127.0.0.1", "127.0.0.1", True),
        ("localhost", "127.0.0.1", False),
        (".example", "a.example", True),
        ("127.0.0.0/8", "127.0.0.1", True),
        ("10.0.0.0/8", "127.0.0.1", False),
        ("", "127.0.0.1", False),
    ],
)
def test_no_proxy(no_proxy: str, host: str, covered: bool) -> None:
    assert excludes(no_proxy, host) is covered


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("NCCL_ALGO", "Ring", False),
        ("NCCL_ALGO", "^Tree", False),
        ("NCCL_ALGO", "ring,tree", False),
        ("NCCL_ALGO", "allreduce:tree;broadcast:ring", False),
        ("NCCL_ALGO", "Rnig", True),
        ("NCCL_PROTO", "LL,Simple", False),
        ("NCCL_P2P_LEVEL", "SYS", False),
        ("NCCL_P2P_LEVEL", "ALL", True),
        ("NCCL_BUFFSIZE", "16777216", False),
        ("NCCL_BUFFSIZE", "16M", True),
        ("NCCL_IB_DISABLE", "1", False),
        ("NCCL_IB_DISABLE", "true", True),
        ("NCCL_NTHREADS", "512", False),
        ("NCCL_NTHREADS", "500", True),
        ("NCCL_SOCKET_IFNAME", "", True),
    ],
)
def test_values_of_nccl(name: str, value: str, wrong: bool) -> None:
    assert bool(nccl_wrong(nccl_variables()[name], value)) is wrong


def test_secrets_are_never_repeated() -> None:
    key = "sk-verysecretvalue123456"
    for line in (
        f"{LAUNCH} --api-key {key}",
        f"{LAUNCH} --api-key {key} --api-key other",
        f"{LAUNCH} --api-token {key}",
        f"HF_TOKEN={key} {LAUNCH} --tp-size x",
    ):
        found = findings(line)
        assert found
        assert key not in repr(found)


def test_the_terminal_is_safe_from_what_a_launch_line_holds() -> None:
    line = f"{LAUNCH} --served-model-name $'a\x1b[2J:b' --port 1 \x1b]52;c;evil\x07 --x\u202ey 1"
    for finding in findings(line):
        assert finding.message.isprintable()
        assert "\u202e" not in finding.message


def test_all_data_ships(tmp_path: Path) -> None:
    from importlib import resources

    data = resources.files("console.preflight") / "data"
    names = {item.name for item in data.iterdir()}
    assert {"sglang.json", "nccl.yaml", "eagle3.json", "engine_check.txt"} <= names
