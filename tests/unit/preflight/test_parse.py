"""Launch texts in every form, and the one clear error for texts that hold no launch."""

from __future__ import annotations

import pytest

from console.errors import UsageError
from console.preflight import LaunchCommand, Redirection, from_argv, parse_command
from console.preflight.docker import image_version, size_mib


def test_a_prefixed_background_command() -> None:
    command = parse_command(
        "A=1 B='two words' nohup /opt/venv/bin/python3.11 -u -m sglang.launch_server \\\n"
        "  --model-path /m --tp-size=8 > /data/log 2>&1 &\n"
    )
    assert command.engine == "sglang"
    assert command.args == ("--model-path", "/m", "--tp-size=8")
    assert command.env == {"A": "1", "B": "two words"}
    assert command.python == "/opt/venv/bin/python3.11"
    assert command.wrapper == ("nohup",)
    assert command.background
    assert command.log == "/data/log"
    assert command.flags == (("--model-path", ("/m",)), ("--tp-size", ("8",)))


def test_exports_count_and_plain_shell_variables_only_expand() -> None:
    command = parse_command(
        "export NCCL_ALGO=Ring\nMODEL=/m\nPORT=8000\nunset NCCL_ALGO\nexport NCCL_PROTO=LL PORT\n"
        'python -m sglang.launch_server --model-path "$MODEL" --port ${PORT} --log-level ${L:-info}'
    )
    assert command.args == ("--model-path", "/m", "--port", "8000", "--log-level", "info")
    assert command.env == {"NCCL_PROTO": "LL", "PORT": "8000"}
    assert command.unresolved == ()


def test_a_single_quoted_variable_is_text() -> None:
    command = parse_command("M=1; python -m sglang.launch_server --model-path '$M' --x \"a$M\"")
    assert command.args == ("--model-path", "$M", "--x", "a1")


def test_what_is_not_known_is_named() -> None:
    command = parse_command(
        "python -m sglang.launch_server --model-path $MODEL --port $(shuf -n1) $EXTRA"
    )
    assert command.unresolved == ("$MODEL", "$(shuf -n1)", "$EXTRA")


@pytest.mark.parametrize(
    ("line", "wrapper"),
    [
        ("sudo -E -u llm sglang serve --model-path /m", ("sudo", "-E", "-u", "llm")),
        ("numactl -N 0 -m 0 sglang serve --model-path /m", ("numactl", "-N", "0", "-m", "0")),
        ("taskset -c 0-7 sglang serve --model-path /m", ("taskset", "-c", "0-7")),
        ("timeout 600 sglang serve --model-path /m", ("timeout", "600")),
        ("env -u X A=1 sglang serve --model-path /m", ("env", "-u", "X")),
        ("uv run sglang serve --model-path /m", ("uv", "run")),
        ("conda run -n sgl sglang serve --model-path /m", ("conda", "run", "-n", "sgl")),
        ("pct exec 129 -- sglang serve --model-path /m", ("pct", "exec", "129", "--")),
        ("setsid bash -c 'exec sglang serve --model-path /m'", ("setsid", "exec")),
        (
            "systemd-run --unit=a -p MemoryMax=1G sglang serve --model-path /m",
            ("systemd-run", "--unit=a", "-p", "MemoryMax=1G"),
        ),
        ("tmux new -d -s x 'nohup sglang serve --model-path /m'", ("nohup",)),
        ("screen -dmS x sglang serve --model-path /m", ("screen", "-dmS", "x")),
        ("while true; do sglang serve --model-path /m; sleep 1; done", ()),
        ("ssh -p 22 root@h 'nohup sglang serve --model-path /m'", ("nohup",)),
    ],
)
def test_wrappers_are_looked_through(line: str, wrapper: tuple[str, ...]) -> None:
    command = parse_command(line)
    assert command.args == ("--model-path", "/m")
    assert command.wrapper == wrapper


@pytest.mark.parametrize(
    ("line", "redirections"),
    [
        ("> a 2>&1", (Redirection("1", "a"), Redirection("2", "a"))),
        ("2>&1 > a", (Redirection("1", "a"),)),
        ("&> a", (Redirection("&", "a"),)),
        (">> a 2>> b", (Redirection("1", "a", True), Redirection("2", "b", True))),
        ("< /dev/null >a", (Redirection("1", "a"),)),
    ],
)
def test_redirections(line: str, redirections: tuple[Redirection, ...]) -> None:
    assert parse_command(f"sglang serve --model-path m {line}").redirections == redirections


@pytest.mark.parametrize(
    ("line", "engine"),
    [
        ("python -m sglang.launch_server --model-path m", "sglang"),
        ("python /src/sglang/launch_server.py --model-path m", "sglang"),
        ("python -m eagle3.launch_server --model-path m", "bundled"),
        ("specops serve --model-path m", "bundled"),
        ("python -m vllm.entrypoints.openai.api_server --model m", "vllm"),
        ("vllm serve m", "vllm"),
    ],
)
def test_the_engine_is_told_from_its_entry(line: str, engine: str) -> None:
    assert parse_command(line).engine == engine


def test_a_unit_with_its_drop_in() -> None:
    command = parse_command(
        "# /etc/systemd/system/k26.service\n[Unit]\nDescription=x\n\n[Service]\n"
        "Environment=\"A=one two\" B=2 'C=3'\nEnvironmentFile=-/etc/default/k26\n"
        "WorkingDirectory=/data\nStandardOutput=append:/var/log/k26.log\n"
        "ExecStart=-/bin/python3 -m sglang.launch_server --model-path /old\n"
        "# drop-in\n[Service]\nExecStart=\n"
        "ExecStart=/bin/python3 -m sglang.launch_server \\\n  # a comment inside\n"
        '  --model-path ${B} --rate 100%% --name "a b"\n[Install]\nWantedBy=multi-user.target\n'
    )
    assert command.args == ("--model-path", "2", "--rate", "100%", "--name", "a b")
    assert command.env == {"A": "one two", "B": "2", "C": "3"}
    assert command.cwd == "/data"
    assert command.log == "/var/log/k26.log"
    assert command.env_files == ("/etc/default/k26",)
    assert command.form == "systemd"


def test_docker_run() -> None:
    command = parse_command(
        "docker run -itd --rm --gpus '\"device=0,1\"' --shm-size 32g --ipc=host "
        "-p 127.0.0.1:80:30000/tcp "
        "-v /models:/models --ulimit memlock=-1 -e A=1 -eB=2 -w /w --name llm "
        "lmsysorg/sglang:v0.5.9-cu129 bash -c 'python3 -m sglang.launch_server --model-path /m'"
    )
    assert command.version == "0.5.9"
    assert command.env == {"A": "1", "B": "2"}
    assert command.background
    assert command.cwd == "/w"
    container = command.container
    assert container is not None
    assert (container.shm_mib, container.ipc_host, container.ports) == (32768.0, True, {80: 30000})
    assert container.mounts == (("/models", "/models"),)
    assert container.ulimits == {"memlock": "-1"}
    assert container.gpus == '"device=0,1"'


def test_compose_with_a_folded_command() -> None:
    command = parse_command(
        "services:\n  proxy: {image: nginx}\n  llm:\n    image: lmsysorg/sglang:v0.5.12.post1\n"
        "    environment: {NCCL_ALGO: Ring, TOKEN: }\n    shm_size: 16gb\n    command: >\n"
        "      python3 -m sglang.launch_server --model-path /m\n      --port 30000 --x $${HOME}\n"
    )
    assert command.form == "compose"
    assert command.args[-1] == "${HOME}"
    assert command.env == {"NCCL_ALGO": "Ring"}
    assert command.container is not None
    assert command.container.shm_mib == 16384.0
    assert command.version == "0.5.12.post1"


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        ("", "command", "empty"),
        ("ls -l", "command", "starts a model server"),
        ("python -m http.server", "command", "starts a model server"),
        ("sglang serve --model-path 'x", "command:1", "never closed"),
        ('a=1\nsglang serve --model-path "x', "command:2", "never closed"),
        ("sglang serve --model-path $(cat x", "command:1", "never closed"),
        ("sglang serve --model-path a\nsglang serve --model-path b", "command", "2 commands"),
        ("sglang serve \\ \n --model-path m", "command:1", "space follows"),
        ("[Service]\nExecStart=A_B=1 python -m sglang.launch_server\n", "command:2", "203/EXEC"),
        ("docker run --gpus all --tp 8 i sglang serve --model-path m", "command", "unknown flag"),
        ("docker run --model-path=m i:1 sglang serve", "command", "before the image"),
        ("[Service]\nType=simple\n", "command", "no ExecStart="),
        ("[Service]\nExecStart=/opt/run.sh\n", "command:2", "starts no model server"),
        ('[Service]\nExecStart=python -m sglang.launch_server "x\n', "command:2", "never closed"),
        (
            "[Service]\nExecStart=python -m sglang.launch_server\n--model-path m\n",
            "command:3",
            "KEY=",
        ),
        ("services:\n  a: [\n", "command:3", "not valid YAML"),
        ("services:\n  a: {image: nginx}\n", "command", "no service starts"),
        ("services: []\n", "command", "no mapping"),
        ("services:\n  a: {image: x, command: 'sglang serve \"'}\n", "command: services.a", "quot"),
        ("docker run --gpus all", "command", "names no image"),
        ("docker run --shm-size huge i sglang serve --model-path m", "command", "not a size"),
        ("a\0b", "command", "NUL"),
    ],
)
def test_bad_text_gets_one_error_with_its_place(text: str, place: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_command(text)
    assert caught.value.place == place
    assert says in caught.value.message
    assert caught.value.hint


def test_an_argument_vector() -> None:
    command = from_argv(["python3", "-m", "sglang.launch_server", "--model-path", "m"], {"A": "1"})
    assert isinstance(command, LaunchCommand)
    assert (command.form, command.env, command.args) == (
        "argv",
        {"A": "1"},
        ("--model-path", "m"),
    )
    with pytest.raises(UsageError, match="no model server"):
        from_argv(["sleep", "1"])


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("lmsysorg/sglang:v0.5.12.post1-cu130", "0.5.12.post1"),
        ("registry:5000/sglang:0.5.9", "0.5.9"),
        ("registry:5000/sglang", None),
        ("lmsysorg/sglang:latest", None),
    ],
)
def test_the_version_in_an_image_tag(image: str, version: str | None) -> None:
    assert image_version(image) == version


def test_sizes() -> None:
    assert size_mib("1g") == 1024
    assert size_mib("64M") == 64
    assert size_mib("1048576") == 1
