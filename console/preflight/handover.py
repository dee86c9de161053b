"""The bundled server's command as SGLang gets it, where SGLang computes in its place."""

from __future__ import annotations

from dataclasses import replace

from console.preflight.command import LaunchCommand
from console.preflight.facts import HostFacts

_OWN = {"--engine": True, "--debug-hang-at": True, "--drain-timeout": True,
        "--check": False, "--no-parent-death-signal": False}  # fmt: skip
"""Flags that SGLang does not get, and whether each takes a value (eagle3/sglang_engine.py)."""


def handed_over(command: LaunchCommand, facts: HostFacts) -> LaunchCommand:
    """The command that is really judged: SGLang's, where the bundled server hands over to it.

    It does so with ``--engine sglang``, and without ``--engine`` on a host that has a GPU and
    SGLang, unless ``--device cpu`` keeps it.
    """
    if command.engine != "bundled":
        return command
    flags = dict(command.flags)  # the last of a name wins, as in the server's parser
    given = flags.get("--engine", ("auto",))[:1]
    able = bool(facts.gpus) and facts.sglang is not None
    on_gpu = able and flags.get("--device", ())[:1] != ("cpu",)
    if given == ("sglang",) or (given == ("auto",) and on_gpu):
        return replace(command, engine="sglang", args=_without_own(command.args))
    return command


def _without_own(args: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments without the bundled server's own flags and their values."""
    out: list[str] = []
    words = iter(args)
    for word in words:
        flag, equals, _ = word.partition("=")
        if flag not in _OWN:
            out.append(word)
        elif _OWN[flag] and not equals:
            next(words, None)
    return tuple(out)
