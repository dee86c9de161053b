"""A launch inside ``docker run …``: its options, and the command in the image.

Facts: the docker run reference; a container's /dev/shm has 64 MiB by default.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace

from console.errors import UsageError
from console.preflight.command import Container, LaunchCommand
from console.preflight.tables import anywhere

Launch = Callable[[list[str], dict[str, str], str], LaunchCommand | None]
"""Finds the launch in words, variables and a place for errors (console.preflight.parse.launch)."""

DEFAULT_SHM_MIB = 64.0
"""docker's --shm-size where none is given."""

_BARE = {
    "--rm", "--init", "--privileged", "--detach", "--interactive", "--tty", "--read-only",
    "--no-healthcheck", "--oom-kill-disable", "--publish-all", "--sig-proxy", "--quiet",
}  # fmt: skip
_OPTIONS = {
    "--add-host", "--annotation", "--attach", "--blkio-weight", "--blkio-weight-device",
    "--cap-add", "--cap-drop", "--cgroup-parent", "--cgroupns", "--cidfile", "--cpu-count",
    "--cpu-percent", "--cpu-period", "--cpu-quota", "--cpu-rt-period", "--cpu-rt-runtime",
    "--cpu-shares", "--cpus", "--cpuset-cpus", "--cpuset-mems", "--detach-keys", "--device",
    "--device-cgroup-rule", "--device-read-bps", "--device-read-iops", "--device-write-bps",
    "--device-write-iops", "--disable-content-trust", "--dns", "--dns-option", "--dns-search",
    "--domainname", "--entrypoint", "--env", "--env-file", "--expose", "--gpus", "--group-add",
    "--health-cmd", "--health-interval", "--health-retries", "--health-start-interval",
    "--health-start-period", "--health-timeout", "--hostname", "--io-maxbandwidth",
    "--io-maxiops", "--ip", "--ip6", "--ipc", "--isolation", "--kernel-memory", "--label",
    "--label-file", "--link", "--link-local-ip", "--log-driver", "--log-opt", "--mac-address",
    "--memory", "--memory-reservation", "--memory-swap", "--memory-swappiness", "--mount",
    "--name", "--network", "--net", "--network-alias", "--oom-score-adj", "--pid", "--pids-limit",
    "--platform", "--publish", "--pull", "--restart", "--runtime", "--security-opt", "--shm-size",
    "--stop-signal", "--stop-timeout", "--storage-opt", "--sysctl", "--tmpfs", "--ulimit",
    "--use-api-socket", "--user", "--userns", "--uts", "--volume", "--volume-driver",
    "--volumes-from", "--workdir",
}  # fmt: skip
_BARE_SHORT = set("ditPq")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?", re.IGNORECASE)
_UNIT_MIB = {"": 1 / 2**20, "b": 1 / 2**20, "k": 1 / 1024, "m": 1.0, "g": 1024.0, "t": 2.0**20}


def image_version(image: str) -> str | None:
    """The engine's version in an image's tag (``lmsysorg/sglang:v0.5.9-cu129``), if it names one.

    ``latest`` and dates name none.
    """
    _, colon, tag = image.rpartition(":")
    match = re.match(r"v?(\d+\.\d+\.\d+(?:\.post\d+)?)", tag) if colon and "/" not in tag else None
    return match[1] if match else None


def size_mib(text: str, place: str = "") -> float:
    """``32g`` as MiB; a bare number is bytes, as docker reads it. ``UsageError`` otherwise."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        raise UsageError(f"'{text}' is not a size", place=place, hint="write 32g or 512m")
    return float(match[1]) * _UNIT_MIB[match[2].lower()]


def parse_docker(
    words: list[str], env: Mapping[str, str], launch: Launch, *, place: str = "command"
) -> LaunchCommand | None:
    """The launch in ``docker run …`` or ``docker exec …``; None for any other docker command."""
    at = next((i for i, w in enumerate(words) if w in ("run", "exec", "create")), None)
    if at is None:
        return None
    options, rest = _docker_options(words[at + 1 :], place)
    if not rest:
        raise UsageError("docker run names no image", place=place, hint="add the image's name")
    image, command = (rest[0], rest[1:]) if words[at] != "exec" else ("", rest[1:])
    entrypoint = [v for k, v in options if k == "--entrypoint"]
    if entrypoint and entrypoint[-1]:
        command = [*shlex.split(entrypoint[-1]), *command]
    inside = _docker_env(options, env)
    found = launch_in_image(command, inside, launch, place, image)
    if found is None:
        return None
    container = _docker_container(options, image, place)
    cwd = [v for k, v in options if k in ("-w", "--workdir")]
    return replace(
        found,
        form="docker",
        container=container,
        version=image_version(image),
        cwd=found.cwd or (cwd[-1] if cwd else None),
        background=found.background or any(k in ("-d", "--detach") for k, _ in options),
        wrapper=(),
        env_files=tuple(v for k, v in options if k == "--env-file"),
    )


def launch_in_image(
    command: list[str], env: dict[str, str], launch: Launch, place: str, image: str = ""
) -> LaunchCommand | None:
    """The engine's launch inside; bare flags mean that the image's own entry point starts it."""
    if command and command[0].startswith("-"):
        module = "vllm.entrypoints.openai.api_server" if "vllm" in image else "sglang.launch_server"
        command = ["python3", "-m", module, *command]
    return launch(command, env, place)


def _docker_options(words: list[str], place: str) -> tuple[list[tuple[str, str]], list[str]]:
    options: list[tuple[str, str]] = []
    at = 0
    while at < len(words) and words[at].startswith("-") and words[at] != "-":
        word = words[at]
        name, eq, value = word.partition("=")
        if word == "--":
            return options, words[at + 1 :]
        if not word.startswith("--"):
            if set(word[1:]) <= _BARE_SHORT:
                options += [("-" + letter, "") for letter in word[1:]]
                at += 1
                continue
            if len(word) > 2 and not eq:  # -eNAME=value, -p8000:8000
                name, eq, value = word[:2], "=", word[2:]
            elif eq and len(name) > 2:
                name, value = word[:2], word[2:]
        if name not in _BARE and name not in _OPTIONS and _is_engines(name):
            raise UsageError(
                f"{name} stands before the image, so docker takes it for an option of its own and "
                "ends with 'unknown flag'",
                place=place,
                hint="write the engine's flags after the image and its command",
            )
        if eq or name in _BARE:
            options.append((name, value))
            at += 1
        elif at + 1 < len(words):
            options.append((name, words[at + 1]))
            at += 2
        else:
            raise UsageError(f"{name} has no value", place=place, hint="give it one")
    return options, words[at:]


def _is_engines(name: str) -> bool:
    """Whether some version of the engine takes an option of that name, in full or shortened."""
    return len(name) > len("--x") and name.startswith("--") and anywhere(name)


def _docker_env(options: list[tuple[str, str]], outer: Mapping[str, str]) -> dict[str, str]:
    inside: dict[str, str] = {}
    for key, value in options:
        if key in ("-e", "--env"):
            name, eq, content = value.partition("=")
            if eq:
                inside[name] = content
            elif name in outer:
                inside[name] = outer[name]
    return inside


def _docker_container(options: list[tuple[str, str]], image: str, place: str) -> Container:
    def last(*names: str) -> str | None:
        return next((v for k, v in reversed(options) if k in names), None)

    shm = last("--shm-size")
    mounts = [v.split(":") for k, v in options if k in ("-v", "--volume")]
    return Container(
        image=image,
        name=last("--name"),
        shm_mib=size_mib(shm, place) if shm else None,
        ipc_host=last("--ipc") == "host",
        host_network=last("--network", "--net") == "host",
        gpus=last("--gpus") or ("runtime" if last("--runtime") == "nvidia" else None),
        ports=published_ports([v for k, v in options if k in ("-p", "--publish")]),
        mounts=tuple((m[0], m[1]) for m in mounts if len(m) > 1),
        ulimits=dict(v.partition("=")[::2] for k, v in options if k == "--ulimit"),
    )


def published_ports(published: list[str]) -> dict[int, int]:
    """``[ADDRESS:]PORT:PORT[/tcp]`` as published to container port; ranges are left out."""
    out: dict[int, int] = {}
    for item in published:
        parts = item.split("/")[0].split(":")
        if len(parts) > 1 and parts[-1].isdigit() and parts[-2].isdigit():
            out[int(parts[-2])] = int(parts[-1])
    return out
