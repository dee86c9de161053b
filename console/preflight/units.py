"""A launch from a systemd unit file, with the service manager's own rules of quoting.

Facts: systemd.service(5) "Command lines", systemd.exec(5) Environment=, systemd.unit(5) specifiers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from console.errors import UsageError
from console.preflight.beside import Reader, variables
from console.preflight.command import LaunchCommand, Redirection
from console.preflight.parse import launch

_SPECIAL = re.compile(r"[-@:+!|]*")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_ASSIGN = re.compile(r"[A-Za-z_]\w*=")
_ESCAPES = {"n": "\n", "t": "\t", "s": " ", '"': '"', "'": "'", "\\": "\\"}


@dataclass(slots=True)
class _Service:
    exec_start: list[tuple[int, str]] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    env_files: list[str] = field(default_factory=list)
    cwd: str | None = None
    outputs: dict[str, str] = field(default_factory=dict)


def parse_unit(text: str, *, place: str = "unit", read: Reader = lambda _: None) -> LaunchCommand:
    """The launch that a unit's ExecStart= makes; ``read`` gives the text of EnvironmentFile=.

    A drop-in pasted after its unit works as systemd merges them: an empty assignment resets.
    Raises ``UsageError`` naming the line where the unit has no ExecStart= that starts an engine.
    """
    service = _read(text, place)
    if not service.exec_start:
        raise UsageError(
            "the unit has no ExecStart= in its [Service] section",
            place=place,
            hint="give the whole unit (systemctl cat NAME)",
        )
    for name in service.env_files:
        service.env |= variables(read(name) or "")
    found: list[LaunchCommand] = []
    for line, value in service.exec_start:
        missing: list[str] = []
        words = _expand(
            _words(_SPECIAL.sub("", value, count=1), f"{place}:{line}"), service.env, missing
        )
        if words and _ASSIGN.match(words[0]):
            raise UsageError(
                f"ExecStart= begins with '{words[0][:60]}': systemd takes it for the program, and "
                "the unit fails with 203/EXEC",
                place=f"{place}:{line}",
                hint="write it as Environment= on a line of its own",
            )
        made = launch(words, dict(service.env), f"{place}:{line}")
        if made is not None:
            found.append(replace(made, unresolved=tuple(missing) or made.unresolved))
    if len(found) != 1:
        line, value = service.exec_start[-1]
        raise UsageError(
            f"ExecStart= starts no model server: '{value[:60]}'"
            if not found
            else f"the unit starts {len(found)} model servers, one is judged at a time",
            place=f"{place}:{line}",
            hint="ExecStart= must hold the engine's command itself; a script it calls is not read",
        )
    return replace(
        found[0],
        form="systemd",
        cwd=found[0].cwd or service.cwd,
        redirections=found[0].redirections or _outputs(service),
        env_files=tuple(service.env_files),
    )


def _read(text: str, place: str) -> _Service:
    service = _Service()
    section = "Service" if not re.search(r"(?m)^\s*\[", text) else ""
    for number, line in _logical_lines(text):
        header = re.fullmatch(r"\[(.+)\]", line)
        if header:
            section = header[1]
        elif section == "Service":
            key, eq, value = line.partition("=")
            if not eq:
                raise UsageError(
                    f"'{line[:60]}' is neither a section nor KEY=VALUE",
                    place=f"{place}:{number}",
                    hint="end the line before it with a backslash if it belongs there",
                )
            _assign(service, key.strip(), value.strip(), number, place)
    return service


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with continuations joined; comments inside a continuation are dropped, as systemd."""
    out: list[tuple[int, str]] = []
    pending = ""
    start = 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.strip()
        if not line and not pending:
            continue
        if line.startswith(("#", ";")):
            continue
        start = start if pending else number
        if line.endswith("\\"):
            pending += line[:-1] + " "
            continue
        out.append((start, (pending + line).strip()))
        pending = ""
    if pending:
        out.append((start, pending.strip()))
    return out


def _assign(service: _Service, key: str, value: str, line: int, place: str) -> None:
    if key == "ExecStart":
        if value:
            service.exec_start.append((line, value))
        else:
            service.exec_start.clear()
    elif key == "Environment":
        if not value:
            service.env.clear()
        for word in _words(value, f"{place}:{line}"):
            name, eq, content = word.partition("=")
            if eq:
                service.env[name] = _specifiers(content)
    elif key == "EnvironmentFile" and value:
        service.env_files.append(value.lstrip("-"))
    elif key == "WorkingDirectory":
        service.cwd = value.lstrip("-") or None
    elif key in ("StandardOutput", "StandardError"):
        service.outputs[key] = value


def _outputs(service: _Service) -> tuple[Redirection, ...]:
    out: list[Redirection] = []
    for key, fd in (("StandardOutput", "1"), ("StandardError", "2")):
        kind, colon, path = service.outputs.get(key, "").partition(":")
        if colon and kind in ("append", "file", "truncate"):
            out.append(Redirection(fd, path, append=kind == "append"))
    if out and "StandardError" not in service.outputs:  # inherits standard output by default
        out.append(Redirection("2", out[0].path, out[0].append))
    return tuple(out)


def _words(value: str, place: str) -> list[str]:
    """Words by systemd's quoting: quotes only around whole words, C escapes."""
    words: list[str] = []
    current: str | None = None
    quote = ""
    at = 0
    while at < len(value):
        char = value[at]
        if char == "\\" and at + 1 < len(value):
            current = (current or "") + _ESCAPES.get(value[at + 1], "\\" + value[at + 1])
            at += 1
        elif quote:
            if char == quote:
                quote = ""
            else:
                current = (current or "") + char
        elif char in "'\"":
            quote = char
            current = current or ""
        elif char.isspace():
            if current is not None:
                words.append(current)
            current = None
        else:
            current = (current or "") + char
        at += 1
    if quote:
        raise UsageError(
            f"the quote {quote} is never closed", place=place, hint="close it on the same value"
        )
    return words if current is None else [*words, current]


def _specifiers(word: str) -> str:
    return word.replace("%%", "%")


def _expand(words: list[str], env: dict[str, str], missing: list[str]) -> list[str]:
    """Variables as systemd expands them: ``$NAME`` alone splits into words, ``${NAME}`` never."""
    out: list[str] = []

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if name not in env:
            missing.append("$" + name)
            return match[0]
        return env[name]

    for word in words:
        alone = re.fullmatch(r"\$([A-Za-z_]\w*)", word)
        if alone and alone[1] in env:
            out += env[alone[1]].split()
        else:
            out.append(_specifiers(_VARIABLE.sub(value, word)).replace("$$", "$"))
    return out
