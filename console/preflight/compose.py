"""A launch from a compose file.

Facts: the compose file reference (``$$``, interpolation, the forms of environment and command).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import yaml

from console.errors import UsageError
from console.preflight.command import Container, LaunchCommand
from console.preflight.docker import image_version, launch_in_image, published_ports, size_mib
from console.preflight.parse import launch

_INTERPOLATE = re.compile(r"\$(?:\$|\{([A-Za-z_]\w*)(?:(:?[-?+])([^}]*))?\}|([A-Za-z_]\w*))")


def parse_compose(text: str, *, place: str = "compose") -> LaunchCommand:
    """The launch of the one service in a compose file that starts a model server."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or "not YAML"
        raise UsageError(
            f"the compose file is not valid YAML: {problem}",
            place=f"{place}:{line}",
            hint="docker compose config shows the same error",
        ) from error
    services = document.get("services") if isinstance(document, dict) else None
    if not isinstance(services, dict):
        raise UsageError(
            "services: holds no mapping", place=place, hint="see docker compose config"
        )
    found: dict[str, LaunchCommand] = {}
    for name, service in services.items():
        if isinstance(service, dict):
            made = _service(str(name), service, place)
            if made is not None:
                found[str(name)] = made
    if len(found) != 1:
        names = ", ".join(found or map(str, services))
        raise UsageError(
            f"{'several services start' if found else 'no service starts'} a model server: {names}",
            place=place,
            hint="give a file with the one service that is meant",
        )
    return next(iter(found.values()))


def _service(name: str, service: Mapping[str, Any], place: str) -> LaunchCommand | None:
    where = f"{place}: services.{name}"
    env, missing = _compose_env(service.get("environment"))
    command = _compose_words(service.get("entrypoint"), env, missing, where)
    command += _compose_words(service.get("command"), env, missing, where)
    if not command:
        return None
    image = _text(service.get("image", ""), env, missing)
    if command[0].startswith("-") and not re.search("sglang|vllm", image):
        return None
    found = launch_in_image(command, dict(env), launch, where, image)
    if found is None:
        return None
    shm = service.get("shm_size")
    limits = service.get("ulimits")
    container = Container(
        image=image,
        name=str(service.get("container_name", name)),
        shm_mib=size_mib(str(shm), where) if shm is not None else None,
        ipc_host=service.get("ipc") == "host",
        host_network=service.get("network_mode") == "host",
        gpus=_compose_gpus(service),
        ports=published_ports([_text(p, env, missing) for p in service.get("ports") or []]),
        mounts=_compose_mounts(service.get("volumes")),
        ulimits={str(k): str(v) for k, v in limits.items()} if isinstance(limits, dict) else {},
    )
    files = service.get("env_file") or ()
    return replace(
        found,
        form="compose",
        container=container,
        version=image_version(image),
        cwd=found.cwd or service.get("working_dir"),
        unresolved=tuple(dict.fromkeys((*found.unresolved, *missing))),
        env_files=(files,) if isinstance(files, str) else tuple(map(str, files)),
    )


def _compose_gpus(service: Mapping[str, Any]) -> str | None:
    if service.get("gpus"):
        return str(service["gpus"])
    if service.get("runtime") == "nvidia":
        return "runtime"
    resources = (service.get("deploy") or {}).get("resources") or {}
    devices = (resources.get("reservations") or {}).get("devices") or []
    for device in devices:
        if isinstance(device, dict) and "gpu" in (device.get("capabilities") or []):
            return str(device.get("count", device.get("device_ids", "all")))
    return None


def _compose_mounts(volumes: Any) -> tuple[tuple[str, str], ...]:
    out: list[tuple[str, str]] = []
    for item in volumes or []:
        if isinstance(item, dict):
            out.append((str(item.get("source", "")), str(item.get("target", ""))))
        elif ":" in str(item):
            parts = str(item).split(":")
            out.append((parts[0], parts[1]))
    return tuple(out)


def _compose_env(raw: Any) -> tuple[dict[str, str], list[str]]:
    missing: list[str] = []
    if isinstance(raw, dict):
        pairs = [(str(k), v) for k, v in raw.items()]
    else:
        pairs = [tuple(str(item).partition("=")[::2]) for item in raw or []]  # type: ignore[misc]
    out: dict[str, str] = {}
    for name, value in pairs:
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            out[name] = _text(text, {}, missing)
    return out, []  # an unset variable in environment: is the host's own, not ours to judge


def _compose_words(raw: Any, env: Mapping[str, str], missing: list[str], place: str) -> list[str]:
    """A command as list or string; interpolation does not see the service's own variables."""
    if raw is None:
        return []
    if isinstance(raw, list):
        return [_text(item, {}, missing) for item in raw]
    text = _text(raw, {}, missing)
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError as error:
        raise UsageError(f"command: {error}", place=place, hint="check its quotes") from error
    return words


def _text(raw: Any, env: Mapping[str, str], missing: list[str]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match[1] or match[4]
        if name in env:
            return env[name]
        if match[2] in ("-", ":-"):
            return match[3] or ""
        missing.append("$" + name)
        return match[0]

    return _INTERPOLATE.sub(value, str(raw))
