"""Manifests, Dockerfiles, word lists, commands that run commands, and files beside the line."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.errors import UsageError
from console.model import Severity
from console.preflight import HostFacts, check, parse_command, reader
from console.preflight.beside import variables

ENGINE = "python3 -m sglang.launch_server --model-path /m"

MANIFEST = """
apiVersion: v1
kind: Pod
spec:
  containers:
    - name: sidecar
      image: envoy
      args: ["-c", "/etc/envoy.yaml"]
    - name: sgl
      image: lmsysorg/sglang:v0.5.9
      command: ["python3", "-m", "sglang.launch_server"]
      args: ["--model-path", "$(MODEL)", "--node-rank", "$(RANK)"]
      env:
        - {name: MODEL, value: /models/a}
        - {name: RANK, valueFrom: {fieldRef: {fieldPath: x}}}
        - {name: NCCL_DEBUG, value: WARN}
      resources: {limits: {nvidia.com/gpu: 8}}
      volumeMounts: [{name: shm, mountPath: /dev/shm}]
"""


def test_the_container_that_serves_is_found_in_a_manifest() -> None:
    command = parse_command(MANIFEST)
    assert command.form == "kubernetes"
    assert command.version == "0.5.9"
    assert command.args == ("--model-path", "/models/a", "--node-rank", "$(RANK)")
    assert command.env == {"MODEL": "/models/a", "NCCL_DEBUG": "WARN"}
    assert command.unresolved == ("$RANK",)
    assert command.container is not None
    assert (command.container.gpus, command.container.ipc_host) == ("8", True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (MANIFEST.replace("sglang.launch_server", "http.server"), "no containers start"),
        (MANIFEST.replace('"-c", "/etc/envoy.yaml"', "python, -m, sglang.launch_server, -x"), "2"),
        ("kind: Pod\nspec:\n  containers:\n  - {{ toYaml . }}\n", "not valid YAML"),
        ("FROM a\nCMD [\"nginx\"]\n", "start no model server"),
        ('["sleep", "1"]', "starts no model server"),
    ],
)  # fmt: skip
def test_a_text_without_one_launch_is_one_error(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_command(text)


def test_the_last_stage_of_a_dockerfile_counts() -> None:
    command = parse_command(
        'FROM build AS one\nCMD ["x"]\nFROM lmsysorg/sglang:v0.5.9\nENV A="1" B=2\n'
        f'ENTRYPOINT ["/bin/sh", "-c"]\nCMD ["{ENGINE} --port 8000"]\n'
    )
    assert command.args == ("--model-path", "/m", "--port", "8000")
    assert (command.version, command.env) == ("0.5.9", {"A": "1", "B": "2"})


@pytest.mark.parametrize(
    "line",
    [
        f"kubectl exec -n ns pod-0 -c server -- env A=1 {ENGINE}",
        f"kubectl exec pod-0 -- bash -lc 'A=1 {ENGINE}'",
        f"mpirun -np 1 -x A=1 {ENGINE}",
        f"apptainer exec --nv --env A=1 image.sif {ENGINE}",
        f"su - sgl -c 'A=1 {ENGINE}'",
        f"runuser -u sgl -- env A=1 {ENGINE}",
        f"lxc-attach -n 129 -- env A=1 {ENGINE}",
        f"tmux send-keys -t one 'A=1 {ENGINE}' C-m",
        f"flock /tmp/lock env A=1 {ENGINE}",
        f"RUN='A=1 {ENGINE}'; eval \"$RUN\"",
    ],
)
def test_commands_that_run_the_launch(line: str) -> None:
    command = parse_command(line)
    assert command.args == ("--model-path", "/m")
    assert command.env["A"] == "1"


@pytest.mark.parametrize("line", [f"echo {ENGINE}", f"printf '%s' {ENGINE}", f"pgrep -f {ENGINE}"])
def test_commands_that_only_speak_of_it(line: str) -> None:
    with pytest.raises(UsageError, match="starts a model server"):
        parse_command(line)


def test_arrays_of_a_script() -> None:
    command = parse_command(
        "if true; then\n  A=(\n    --tp-size 2  # two\n    --chat-template 'a b'\n  )\nfi\n"
        f'A+=(--port "8000")\n{ENGINE} "${{A[@]}}" ${{B[@]}}'
    )
    assert command.args[2:8] == ("--tp-size", "2", "--chat-template", "a b", "--port", "8000")
    assert command.args[8] == "${B[@]}"
    with pytest.raises(UsageError, match="bracket"):
        parse_command(f"A=(1\n{ENGINE}")


def test_a_substitution_inside_a_value_stays_one_word() -> None:
    command = parse_command(
        f'N=$((2 * 4))\nARGS=" --dist-init-addr tcp://$(hostname -I | head -1):5000 --x $N"\n'
        f"{ENGINE} $ARGS"
    )
    assert command.args[2] == "--dist-init-addr"
    assert command.args[3].startswith("tcp://$(hostname")
    assert command.args[4] == "--x"
    assert len(command.args) == 6


def test_flags_of_a_config_file_count_and_the_line_wins(tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text(
        "model-path: /m\ntp-size: 2\ntrust-remote-code: true\nenable-metrics: false\n"
        "speculative-algorithm: EAGLE3\nspeculative-eagle-topk: 4\ncuda-graph-bs: [1, 2]\n"
    )
    line = "python3 -m sglang.launch_server --config /etc/sgl/serve.yaml --tp-size 4"
    command = parse_command(line, read=reader(tmp_path))
    assert "--enable-metrics" not in command.args
    assert command.args[-2:] == ("--tp-size", "4")
    findings = check(command, HostFacts(), "0.5.12.post1")
    rules = {f.rule for f in findings if f.severity is Severity.ERROR}
    assert rules == {"spec-partial"}
    assert "config-file" in {f.rule for f in check(parse_command(line), HostFacts(), "0.5.9")}


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [\n"])
def test_a_config_file_that_is_no_mapping(tmp_path: Path, text: str) -> None:
    (tmp_path / "serve.yml").write_text(text)
    line = "python3 -m sglang.launch_server --config serve.yml"
    with pytest.raises(UsageError, match="--config file") as raised:
        parse_command(line, read=reader(tmp_path))
    assert raised.value.place.startswith("serve.yml")


def test_environment_files_of_units_and_containers(tmp_path: Path) -> None:
    (tmp_path / "sgl.env").write_text("# where\nMODEL=/m\nNCCL_PROTO='LL'\nnot a line\n")
    unit = (
        "[Service]\nEnvironment=NCCL_PROTO=Simple\nEnvironmentFile=-/etc/default/sgl.env\n"
        "ExecStart=/usr/bin/python3 -m sglang.launch_server --model-path ${MODEL}\n"
    )
    command = parse_command(unit, read=reader(tmp_path))
    assert command.args == ("--model-path", "/m")
    assert command.env["NCCL_PROTO"] == "LL"
    assert command.unresolved == ()
    assert parse_command(unit).unresolved == ("$MODEL",)
    docker = f"docker run --env-file sgl.env -e NCCL_PROTO=Simple image {ENGINE}"
    assert parse_command(docker, read=reader(tmp_path)).env == {
        "MODEL": "/m",
        "NCCL_PROTO": "Simple",
    }


def test_a_reader_gives_none_for_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    read = reader(tmp_path)
    assert read("absent") is None
    assert read("binary") is None
    assert read(str(tmp_path)) is None
    assert read("a\0b") is None
    assert variables('export A = 1\nB="x y"\n=3\n') == {"A": "1", "B": "x y"}
