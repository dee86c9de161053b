"""``specops preflight``: would this launch fail? For a configured server, or for a pasted line."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from console.cli.common import Cli, common, connected, connected_all, run_async
from console.cli.output import fit, paint, print_json, say, width
from console.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from console.config import Config
    from console.model import Finding, Server
    from console.preflight import LaunchCommand
    from console.remote import Remote

MAX_COMMAND = 1 << 20
COLOURS = {"error": "red", "warning": "yellow", "info": "dim"}


@dataclass(frozen=True, slots=True)
class Judged:
    """A launch that was judged: findings, and the version that they hold for (``None``: newest)."""

    findings: tuple[Finding, ...]
    version: str | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing of it would stop the launch."""
        return not any(f.severity.value == "error" for f in self.findings)


@click.command()
@click.argument("server", required=False)
@click.option("--preset", metavar="NAME", help="With this preset instead of the configured one.")
@click.option("--nccl", metavar="NAME", help="With this NCCL preset.")
@click.option("--no-engine", is_flag=True, help="Own rules only; do not ask the host's SGLang.")
@click.option("--command", "text", metavar="FILE|-", help="A pasted command, unit or compose file.")
@click.option("--target", type=click.Path(path_type=Path), metavar="DIR", help="Its target model.")
@click.option("--draft", type=click.Path(path_type=Path), metavar="DIR", help="Its draft model.")
@click.option("--sglang", "version", metavar="VERSION", help="The SGLang version to judge by.")
@common()
def preflight(  # noqa: PLR0913, PLR0917 - one parameter an option
    cli: Cli, server: str | None, preset: str | None, nccl: str | None, no_engine: bool,
    text: str | None, target: Path | None, draft: Path | None, version: str | None,
) -> int:  # fmt: skip
    """Would this launch fail? Changes nothing. With --command no host is asked.

    Exit status 0 when nothing would stop it (warnings are printed), 5 when something would.
    """
    if (server is None) == (text is None):
        hint = "specops preflight SERVER, or --command FILE --target DIR"
        raise UsageError("name a server or give --command", hint=hint)
    if text is not None:
        if preset or nccl:
            raise UsageError("--preset and --nccl go with a server", hint="edit the command itself")
        judged = offline(text, target, draft, version)
    else:
        if target or draft:
            raise UsageError("--target and --draft go with --command", hint="name no server")
        judged = run_async(_online(cli, str(server), preset, nccl, version, ask=not no_engine))
    if cli.json:
        print_json(document(judged))
    else:
        say_findings(judged)
    return 0 if judged.ok else 5


def document(judged: Judged) -> dict[str, Any]:
    """The contract's document; ``change`` and ``source`` beyond it."""
    return {
        "ok": judged.ok,
        "sglang_version": judged.version,
        "findings": [finding_to_json(finding) for finding in judged.findings],
    }


def finding_to_json(finding: Finding) -> dict[str, Any]:
    """One finding as the contract shapes it."""
    change = finding.change
    return {
        "rule": finding.rule,
        "severity": finding.severity.value,
        "message": finding.message,
        "fix": finding.fix,
        "flags": list(finding.flags),
        "change": change and {"flags": dict(change.flags), "env": dict(change.env)},
        "source": finding.source,
    }


def say_findings(judged: Judged) -> None:
    """Findings for people, errors first, each with what to do."""
    import textwrap

    for finding in judged.findings:
        level = finding.severity.value
        say(paint(f"{level:<8}", COLOURS[level]) + paint(finding.rule, "bold"))
        for part in (finding.message, f"→ {finding.fix}" if finding.fix else ""):
            for line in textwrap.wrap(part, max(20, min(width(), 100) - 10)):
                say(f"        {line}")
    counts = dict.fromkeys(COLOURS, 0)
    for finding in judged.findings:
        counts[finding.severity.value] += 1
    words = ", ".join(f"{n} {level}{'s' * (n != 1)}" for level, n in counts.items() if n)
    verdict = paint("nothing would stop it", "green") if judged.ok else paint("it fails", "red")
    by = f" (SGLang {judged.version})" if judged.version else ""
    say(fit(f"{verdict}{by}{': ' + words if words else ''}", width() + 9))


def offline(text: str, target: Path | None, draft: Path | None, version: str | None) -> Judged:
    """A pasted launch judged with nothing but two model folders.

    Raises:
        UsageError: the text holds no launch, or a file is not there.
    """
    from console.preflight import check, offline_facts, parse_command, reader

    beside = Path() if text == "-" else Path(text).parent
    place = "stdin" if text == "-" else text
    command = parse_command(read_text(text), place=place, read=reader(beside))
    findings = check(command, offline_facts(target, draft), version or "")
    return Judged(findings, version or command.version)


def read_text(name: str) -> str:
    """A file's text, standard input for ``-``.

    Raises:
        UsageError: it cannot be read, or is no text.
    """
    try:
        if name == "-":
            data = sys.stdin.buffer.read(MAX_COMMAND + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(MAX_COMMAND + 1)
        if len(data) > MAX_COMMAND:
            raise UsageError("larger than any launch command", place=name)
        return data.decode("utf-8")
    except OSError as error:
        raise UsageError(error.strerror or str(error), place=name) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"not UTF-8 at byte {error.start}", place=name) from error


async def _online(
    cli: Cli, name: str, preset: str | None, nccl: str | None, version: str | None, *, ask: bool
) -> Judged:
    from console.planning.enginecheck import engine_findings
    from console.planning.hostfacts import gather, replaced_by
    from console.preflight import check

    config = cli.config()
    server = config.server(name)
    if len(server.nodes) > 1:
        if version is not None:
            raise UsageError("--sglang with a server over several hosts", hint="leave it out")
        return await _over_several(cli, config, server, preset, nccl, ask=ask)
    async with connected(config, config.host(server.host)) as remote:
        command, found = await planned(cli, remote, config, server, preset, nccl)
        snapshot = await remote.snapshot(full=True)
        runs = await remote.runs()
        facts = await gather(
            remote,
            command,
            snapshot,
            replaced=replaced_by(server, runs, snapshot),
            servers=config.servers_on(remote.host.name),
            runs=runs,
            version=version or found,
        )
        findings = check(command, facts, version or facts.sglang or "")
        if ask:
            findings = with_engine(
                findings,
                await engine_findings(remote, command, facts, sure=server.runner.kind == "process"),
            )
    return Judged(findings, version or facts.sglang)


async def _over_several(
    cli: Cli, config: Config, server: Server, preset: str | None, nccl: str | None, *, ask: bool
) -> Judged:
    """What a relaunch of all its nodes would be told."""
    from console.actions.launched import starts
    from console.model import StepKind
    from console.planning.enginecheck import ask_engine
    from console.planning.planner import Options, Planner
    from console.runners.settings import choose

    async with connected_all(config, server.nodes) as remotes:
        planner = Planner(remotes[server.host], config, cli.presets(), "", remotes)
        choice = choose(planner.presets, preset, nccl)
        plan = await planner.relaunch(server, choice, Options())
        findings = plan.findings
        for step in plan.steps:
            if ask and step.kind is StepKind.PREFLIGHT:
                findings = with_engine(
                    findings,
                    await ask_engine(remotes[step.host], step.argv, starts(plan, step.host)),
                )
    return Judged(findings, None)


def with_engine(own: Sequence[Finding], engine: Sequence[Finding]) -> tuple[Finding, ...]:
    """Own findings and the engine's, errors first."""
    order = ("error", "warning", "info")
    return tuple(sorted((*own, *engine), key=lambda f: order.index(f.severity.value)))


async def planned(
    cli: Cli, remote: Remote, config: Config, server: Server, preset: str | None, nccl: str | None
) -> tuple[LaunchCommand, str | None]:
    """The command that a launch would run, as its runner builds it, and SGLang's version.

    Raises:
        UsageError: a preset does not exist, or a container is to be judged by its name.
    """
    from console.planning.planner import Planner
    from console.preflight import from_argv
    from console.runners.settings import choose

    if server.runner.kind == "docker" and server.runner.image is None:
        hint = "specops preflight --command FILE takes its docker run line or compose file"
        message = "a container keeps the flags it was made with"
        raise UsageError(message, place=server.name, hint=hint)
    planner = Planner(remote, config, cli.presets(), "")
    choice = choose(planner.presets, preset, nccl)
    start = await planner.start(server, choice, remote.hello.time)
    return from_argv(start.argv, start.run.env, start.run.cwd), start.version
