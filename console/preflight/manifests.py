"""A launch from a Kubernetes manifest, a Dockerfile, or a JSON argument vector.

Facts: the Kubernetes reference of Container (command, args, env, ``$(NAME)``); the Dockerfile
reference of FROM, ENV, ENTRYPOINT and CMD in exec form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import yaml

from console.errors import UsageError
from console.preflight.command import Container, LaunchCommand
from console.preflight.docker import image_version, launch_in_image
from console.preflight.parse import launch

_REFERENCE = re.compile(r"\$(?:\$|\(([A-Za-z_][\w.-]*)\))")


def parse_manifest(text: str, *, place: str = "manifest") -> LaunchCommand:
    """The launch of the one container in a manifest that starts a model server.

    A leader and workers that repeat its flags, or a part of them, count as one.
    """
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise UsageError(
            f"the manifest is not valid YAML: {getattr(error, 'problem', '') or 'unreadable'}",
            place=f"{place}:{mark.line + 1 if mark else 1}",
            hint="kubectl apply --dry-run=client shows the same error; render templates first",
        ) from error
    found = [
        made
        for container in _containers(documents)
        if (made := _launch(container, place)) is not None
    ]
    if not found or any(not set(other.args) <= set(found[0].args) for other in found):
        raise UsageError(
            f"{len(found) or 'no'} containers start a model server",
            place=place,
            hint="give a manifest with the one container that is meant",
        )
    return found[0]


def _containers(node: Any) -> Iterator[Mapping[str, Any]]:
    """Every container in a document, whatever kind it is and however deep its pod template lies."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == "containers" and isinstance(value, list):
                yield from (item for item in value if isinstance(item, Mapping))
            else:
                yield from _containers(value)
    elif isinstance(node, list):
        for item in node:
            yield from _containers(item)


def _launch(container: Mapping[str, Any], place: str) -> LaunchCommand | None:
    env: dict[str, str] = {}
    for entry in container.get("env") or ():
        if isinstance(entry, Mapping) and isinstance(entry.get("value"), str | int | float):
            env[str(entry.get("name"))] = _text(entry["value"], env)
    words = [_text(item, env) for key in ("command", "args") for item in _list(container.get(key))]
    image = str(container.get("image", ""))
    if not words or (words[0].startswith("-") and not re.search("sglang|vllm", image)):
        return None
    found = launch_in_image(words, dict(env), launch, f"{place}: {container.get('name')}", image)
    if found is None:
        return None
    mounts = [m for m in _list(container.get("volumeMounts")) if isinstance(m, Mapping)]
    limits = (container.get("resources") or {}).get("limits") or {}
    gpus = next((str(n) for key, n in limits.items() if str(key).endswith("/gpu")), "all")
    return replace(
        found,
        form="kubernetes",
        container=Container(
            image=image,
            name=str(container.get("name", "")),
            ipc_host=any(m.get("mountPath") == "/dev/shm" for m in mounts),  # noqa: S108 - compared
            gpus=gpus,
        ),
        version=image_version(image),
        cwd=found.cwd or container.get("workingDir"),
        unresolved=tuple(
            dict.fromkeys("$" + match[1] for w in found.args for match in _REFERENCE.finditer(w))
        ),
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(raw: Any, env: Mapping[str, str]) -> str:
    """``$(NAME)`` from the container's own variables; others stay as they are written."""
    return _REFERENCE.sub(
        lambda match: "$" if match[1] is None else env.get(match[1], match[0]), str(raw)
    )


def parse_dockerfile(text: str, *, place: str = "Dockerfile") -> LaunchCommand:
    """The launch that an image's ENTRYPOINT and CMD make; the last stage counts."""
    image, env = "", dict[str, str]()
    parts: dict[str, list[str]] = {}
    for line in re.sub(r"\\\s*\n", " ", text).splitlines():
        word, _, rest = line.strip().partition(" ")
        key = word.upper()
        if key == "FROM":
            image, env, parts = rest.split()[0] if rest.split() else "", {}, {}
        elif key == "ENV":
            env.update(re.findall(r"""([A-Za-z_]\w*)=["']?([^\s"']*)""", rest))
        elif key in ("ENTRYPOINT", "CMD"):
            parts[key] = _exec_form(rest)
    words = [*parts.get("ENTRYPOINT", ()), *parts.get("CMD", ())]
    found = launch_in_image(words, env, launch, place, image) if words else None
    if found is None:
        raise UsageError(
            "ENTRYPOINT and CMD start no model server", place=place, hint="give docker run's line"
        )
    return replace(found, form="docker", version=image_version(image))


def _exec_form(text: str) -> list[str]:
    """The words of ``["a", "b"]``; a plain line is what a shell gets."""
    try:
        value = json.loads(text)
    except ValueError:
        return ["sh", "-c", text]
    return [str(item) for item in value] if isinstance(value, list) else ["sh", "-c", text]


def parse_json(text: str, *, place: str = "command") -> LaunchCommand:
    """The launch in a JSON list of words, as process tables and unit generators print it."""
    words = json.loads(text)
    found = launch([str(word) for word in words], {}, place)
    if found is None:
        raise UsageError(
            "the list starts no model server", place=place, hint="give the whole argument vector"
        )
    return replace(found, form="argv")


def is_json_argv(text: str) -> bool:
    """Whether the text is a JSON list of strings."""
    if not text.lstrip().startswith("["):
        return False
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, list) and bool(value) and all(isinstance(w, str) for w in value)
