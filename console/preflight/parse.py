"""From words to a :class:`LaunchCommand`: argument vectors, shell commands and scripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from console.errors import UsageError
from console.preflight.command import Engine, LaunchCommand, Redirection, is_flag
from console.preflight.docker import parse_docker
from console.preflight.shell import Lexer, Simple

_ASSIGN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"(?:.*/)?(?:python|pypy)(?:\d+(?:\.\d+)*)?$")

# Commands that run the command after them: options of theirs that take the next word.
_WRAPPERS: Mapping[str, tuple[str, ...]] = {
    "sudo": ("-u", "-g", "-h", "-p", "-C", "-T", "-r", "-t", "--user", "--group"),
    "doas": ("-u", "-C"),
    "nohup": (),
    "setsid": (),
    "exec": ("-a",),
    "command": (),
    "time": (),
    "env": ("-u", "-C", "-S", "--unset", "--chdir"),
    "nice": ("-n",),
    "ionice": ("-c", "-n", "-p"),
    "stdbuf": ("-i", "-o", "-e"),
    "numactl": ("-N", "-m", "-C", "-i", "-p"),
    "taskset": (),
    "timeout": ("-k", "-s"),
    "chrt": (),
    "systemd-run": ("-p", "-u", "-E", "-M", "--unit", "--property", "--setenv"),
    "systemd-inhibit": (),
    "srun": ("-N", "-n", "-p", "-c", "-w", "-G", "-t", "-J"),
    "prlimit": (),
    "catchsegv": (),
    "uv": (),
    "poetry": (),
    "conda": ("-n", "-p", "--name", "--prefix"),
    "pct": (),
    "screen": ("-S", "-dmS", "-L"),
}
_OPERANDS = {
    "taskset": 1,
    "timeout": 1,
    "chrt": 1,
    "pct": 1,
}  # words of their own before the command
_TALKERS = frozenset(
    {
        "echo",
        "printf",
        "grep",
        "egrep",
        "pgrep",
        "pkill",
        "killall",
        "which",
        "alias",
        "kill",
        "man",
    }
)
"""Commands that only speak of the command after them."""
_DEEPEST = 200
"""Words of another command among which a launch is looked for."""
_SHELLS = ("bash", "sh", "zsh", "dash", "ash", "ksh")
_KEYWORDS = ("do", "then", "else", "if", "while", "until", "!", "{")
_SUBCOMMAND = {"uv": "run", "poetry": "run", "conda": "run", "pct": "exec"}
_SSH_VALUED = ("-p", "-i", "-l", "-o", "-J", "-F", "-b", "-c", "-L", "-R", "-D")
_MODULES: Mapping[str, Engine] = {
    "sglang.launch_server": "sglang",
    "sglang.srt.entrypoints.http_server": "sglang",
    "eagle3.launch_server": "bundled",
    "eagle3": "bundled",
    "vllm.entrypoints.openai.api_server": "vllm",
}
_PROGRAMS: Mapping[tuple[str, str], Engine] = {
    ("sglang", "serve"): "sglang",
    ("vllm", "serve"): "vllm",
    ("specops", "serve"): "bundled",
}
ENGINE_HINT = (
    "give a line with python -m sglang.launch_server, sglang serve, vllm serve or "
    "python -m eagle3.launch_server"
)


def from_argv(
    argv: Sequence[str], env: Mapping[str, str] | None = None, cwd: str | None = None
) -> LaunchCommand:
    """The launch that an argument vector makes; ``UsageError`` where it starts no model server."""
    found = launch(list(argv), dict(env or {}))
    if found is None:
        raise UsageError(f"no model server is started by '{_short(argv)}'", hint=ENGINE_HINT)
    return replace(found, form="argv", cwd=cwd)


def parse_shell(
    text: str, *, env: Mapping[str, str] | None = None, place: str = "command"
) -> LaunchCommand:
    """The launch in a shell command or script; variables set before it are expanded."""
    _check_continuations(text, place)
    variables: dict[str, str] = {}  # the shell's own: expanded, but not inherited by the server
    exported: dict[str, str] = dict(env or {})
    known: dict[str, str] = dict(exported)
    lexer = Lexer(_undecorated(text), known, place)
    cwd: str | None = None
    found: list[LaunchCommand] = []
    last: list[str] = []
    while (simple := lexer.next()) is not None:
        if not simple.words:
            continue
        if found and is_flag(simple.words[0]):
            found[-1] = replace(found[-1], lost=(*found[-1].lost, _short(simple.words)))
            continue
        last = simple.words
        if _assigns(simple.words, variables, exported):
            known.update(variables | exported)
            continue
        if simple.words[0] == "cd":
            cwd = simple.words[1] if len(simple.words) > 1 else None
            continue
        command = _launch_of(simple, exported, place)
        if command is not None:
            found.append(replace(command, cwd=command.cwd or cwd))
    if not found:
        what = f", the last one is '{_short(last)}'" if last else ""
        raise UsageError(
            f"no command here starts a model server{what}", place=place, hint=ENGINE_HINT
        )
    if len(found) > 1:
        raise UsageError(
            f"{len(found)} commands here start a model server, one is judged at a time",
            place=place,
            hint="leave one in the text",
        )
    unresolved = tuple(dict.fromkeys((*found[0].unresolved, *lexer.unresolved)))
    used = tuple(u for u in unresolved if any(u.strip("$") in w for w in _texts(found[0])))
    return replace(found[0], unresolved=used)


def _check_continuations(text: str, place: str) -> None:
    """A backslash that a space follows does not continue the line; it looks as if it did."""
    for number, line in enumerate(text.splitlines(), start=1):
        if re.search(r"\\[ \t]+$", line) and not line.lstrip().startswith("#"):
            raise UsageError(
                "a space follows the backslash at the end of the line: the command ends here and "
                "the next line is a command of its own",
                place=f"{place}:{number}",
                hint="remove the space after the backslash",
            )


def _texts(command: LaunchCommand) -> Iterable[str]:
    yield from command.args
    yield from command.env.values()
    yield command.python


def _undecorated(text: str) -> str:
    """The text without prompts and code fences that come along when it is copied."""
    lines = [line for line in text.splitlines() if not re.match(r"\s*```", line)]
    return "\n".join(
        re.sub(r"^\s*(?:\S*[@:~]\S*)?[$%#]\s+(?=\S)", "", ln) if _prompt(ln) else ln for ln in lines
    )


def _prompt(line: str) -> bool:
    return bool(re.match(r"\s*(?:[\w.-]+@[\w.-]+[^$#]*[$#]|\$)\s+\S", line))


def _assigns(words: list[str], variables: dict[str, str], exported: dict[str, str]) -> bool:
    """Whether the command only sets variables; sets them."""
    keyword = words[0] in ("export", "declare", "typeset", "local", "readonly", "set", "unset")
    rest = words[1:] if keyword else words
    pairs = [_ASSIGN.fullmatch(word) for word in rest]
    if not keyword and not all(pairs):
        return False
    for word, pair in zip(rest, pairs, strict=True):
        if words[0] == "unset":
            variables.pop(word, None)
            exported.pop(word, None)
        elif pair and words[0] == "export":
            exported[pair[1]] = pair[2]
        elif pair:
            target = exported if pair[1] in exported else variables
            target[pair[1]] = pair[2]
        elif words[0] == "export" and word in variables:
            exported[word] = variables[word]
    return True


def _launch_of(simple: Simple, exported: Mapping[str, str], place: str) -> LaunchCommand | None:
    found = launch(simple.words, dict(exported), place)
    if found is None:
        return None
    out: list[Redirection] = list(found.redirections)
    for item in simple.redirects:
        if item.dup:
            source = next((r for r in reversed(out) if r.fd == item.target), None)
            if source:
                out.append(Redirection(item.fd, source.path, source.append))
        elif not item.input:
            out.append(Redirection(item.fd, item.target, item.append))
    background = found.background or simple.end == "&"
    return replace(found, redirections=tuple(out), background=background)


def launch(words: list[str], env: dict[str, str], place: str = "command") -> LaunchCommand | None:
    """The launch in one command's words, looking through wrappers; None where there is none."""
    wrapper: list[str] = []
    rest = list(words)
    while rest:
        word = rest[0]
        program = PurePosixPath(word).name
        assign = _ASSIGN.fullmatch(word)
        if word in _KEYWORDS:
            rest.pop(0)
        elif assign:
            env[assign[1]] = assign[2]
            rest.pop(0)
        elif script := _script(rest):
            return _nested(script, env, wrapper, place)
        elif program in ("docker", "podman", "nerdctl"):
            return parse_docker(rest, env, launch, place=place)
        elif program in _WRAPPERS and _wraps(rest):
            taken = _skip_wrapper(rest)
            wrapper += taken
            rest = rest[len(taken) :]
        else:
            return _engine(rest, env, wrapper) or _within(rest, env, wrapper, place)
    return None


def _within(
    rest: list[str], env: dict[str, str], wrapper: list[str], place: str
) -> LaunchCommand | None:
    """The launch behind a command of another kind: kubectl exec, mpirun, apptainer, flock."""
    if PurePosixPath(rest[0]).name in _TALKERS:
        return None
    given = dict(env)
    for at, word in enumerate(rest[1:_DEEPEST], start=1):
        before = [*wrapper, *rest[:at]]
        if assign := _ASSIGN.fullmatch(word):
            given[assign[1]] = assign[2]
        elif PurePosixPath(word).name in _SHELLS and (script := _script(rest[at:])):
            return _nested(script, given, before, place)
        elif found := _engine(rest[at:], given, before):
            return found
    return None


def _wraps(rest: list[str]) -> bool:
    sub = _SUBCOMMAND.get(PurePosixPath(rest[0]).name)
    return sub is None or sub in rest[1:3]


def _skip_wrapper(rest: list[str]) -> list[str]:
    """The wrapper's own words: its name, options with their values, operands."""
    program = PurePosixPath(rest[0]).name
    valued = _WRAPPERS[program]
    at = 1
    operands = _OPERANDS.get(program, 0) + (program in _SUBCOMMAND)
    while at < len(rest):
        word = rest[at]
        if word == "--":
            return rest[: at + 1]
        if word.startswith("-"):
            at += 2 if word in valued else 1
        elif operands:
            operands -= 1
            at += 1
        else:
            break
    return rest[:at]


def _script(rest: list[str]) -> str:
    """The text that ``bash -c``, ``ssh HOST`` or ``tmux`` runs; empty for other commands."""
    program = PurePosixPath(rest[0]).name
    if program == "ssh":
        at = 1
        while at < len(rest) and rest[at].startswith("-"):
            at += 2 if rest[at] in _SSH_VALUED else 1
        return " ".join(rest[at + 1 :])
    if program == "tmux":
        return next((word for word in rest[1:] if " " in word), "")
    if program == "eval":
        return " ".join(rest[1:])
    if program in ("su", "runuser", "script"):
        return _after_c(rest)
    if program not in _SHELLS:
        return ""
    for at, word in enumerate(rest[1:], start=1):
        if not word.startswith("-"):
            break
        if not word.startswith("--") and word.endswith("c") and at + 1 < len(rest):
            return rest[at + 1]
    return ""


def _after_c(rest: list[str]) -> str:
    """The text after ``-c`` (or a bundle such as ``-qc``, or ``--command``), wherever it stands."""
    for at, word in enumerate(rest[1:-1], start=1):
        short = word.startswith("-") and not word.startswith("--") and word.endswith("c")
        if short or word == "--command":
            return rest[at + 1]
    return ""


def _nested(
    script: str, env: dict[str, str], wrapper: list[str], place: str
) -> LaunchCommand | None:
    try:
        inner = parse_shell(script, env=env, place=place)
    except UsageError as error:
        if "starts a model server" in error.message:
            return None
        raise
    return replace(inner, wrapper=(*wrapper, *inner.wrapper))


def _engine(rest: list[str], env: dict[str, str], wrapper: list[str]) -> LaunchCommand | None:
    """The launch where the first word is the interpreter or the engine's own program."""
    made = python_entry(rest) or program_entry(rest)
    if made is None:
        return None
    engine, python, entry, args = made
    return LaunchCommand(
        engine=engine,
        args=tuple(args),
        env=env,
        python=python,
        entry=entry,
        wrapper=tuple(wrapper),
        version=None,
    )


def python_entry(rest: list[str]) -> tuple[Engine, str, str, list[str]] | None:
    """``python [-u …] -m MODULE …`` or ``python …/launch_server.py …``."""
    if not _PYTHON.match(rest[0]) and not rest[0].startswith("$"):
        return None
    at = 1
    while at < len(rest):
        word = rest[at]
        if word == "-m" and at + 1 < len(rest):
            module = rest[at + 1]
            if module in ("sglang", "vllm") and rest[at + 2 : at + 3] == ["serve"]:
                return _PROGRAMS[(module, "serve")], rest[0], f"-m {module} serve", rest[at + 3 :]
            if module in _MODULES:
                return _MODULES[module], rest[0], f"-m {module}", rest[at + 2 :]
            return None
        if word in ("-X", "-W"):
            at += 2
        elif word.startswith("-"):
            at += 1
        else:
            path = PurePosixPath(word)
            for module, engine in _MODULES.items():
                if path.as_posix().endswith("/".join(module.split(".")) + ".py"):
                    return engine, rest[0], word, rest[at + 1 :]
            return program_entry(rest[at:])
    return None


def program_entry(rest: list[str]) -> tuple[Engine, str, str, list[str]] | None:
    """``sglang serve …``, ``vllm serve MODEL …``, ``specops serve …``."""
    name = PurePosixPath(rest[0]).name
    engine = _PROGRAMS.get((name, rest[1])) if len(rest) > 1 else None
    if engine is None:
        return None
    args = rest[2:]
    if engine == "vllm" and args and not args[0].startswith("-"):
        args = ["--model", *args]
    return engine, "", f"{rest[0]} serve", args


def _short(words: Sequence[str]) -> str:
    text = " ".join(words)
    return text if len(text) <= 60 else text[:57] + "..."
