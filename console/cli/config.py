"""``specops config``: which hosts.yaml is in use, is it right, write a first one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from console.cli.common import Cli, common
from console.cli.output import print_json, say, warn
from console.errors import Mistakes, UsageError

if TYPE_CHECKING:
    from console.config import Config
    from console.config.presets import Presets

FIRST = """\
# The machines that specops manages, and the servers on them.
# Every key is explained in the README; check this file with: specops config validate

hosts:
  demo: {transport: local}
  # gpu1: {address: gpu1.example, user: root, python: python3}

servers:
  # Its worker outlives a killed launcher, as in some SGLang versions: a zombie can be made.
  demo-eagle3: {host: demo, engine: bundled, port: 30000, speculative: eagle3-3step, nccl: default,
                args: {no-parent-death-signal: true}}
  # chat:
  #   host: gpu1
  #   engine: sglang
  #   model: /models/target
  #   draft: /models/target-eagle3
  #   port: 30000
  #   speculative: eagle3-3step
  #   nccl: default
  #   args: {tp-size: 8, mem-fraction-static: 0.85}
"""


@click.group()
def config() -> None:
    """The hosts.yaml in use."""


@config.command("path")
@common()
def config_path(cli: Cli) -> int:
    """Which hosts.yaml is in use, and where presets are saved."""
    found = cli.config()
    folder = cli.presets().folder
    if cli.json:
        print_json({"hosts": str(found.path), "presets": str(folder), "note": found.note})
    else:
        say(str(found.path))
    return 0


@config.command("print")
@common()
def config_print(cli: Cli) -> int:
    """The hosts and servers as they were understood, defaults filled in, secrets masked."""
    import dataclasses

    from console.text import mask_env

    found = cli.config()
    hosts = {name: dataclasses.asdict(host) for name, host in found.hosts.items()}
    servers = {}
    for name, server in found.servers.items():
        servers[name] = {
            **{f.name: getattr(server, f.name) for f in dataclasses.fields(server)},
            "runner": dataclasses.asdict(server.runner),
            "args": dict(server.args),
            "env": mask_env(server.env),
        }
    document = {"path": str(found.path), "hosts": hosts, "servers": servers}
    if cli.json:
        print_json(document)
        return 0
    import json

    import yaml

    plain = json.loads(json.dumps(document))  # tuples to lists, as YAML wants them
    say(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).rstrip())
    return 0


@config.command("validate")
@click.argument("path", type=click.Path(path_type=Path), metavar="[FILE]", required=False)
@common()
def config_validate(cli: Cli, path: Path | None) -> int:
    """Read hosts.yaml (or FILE) and every preset; the names they use must exist."""
    if path is not None:
        if cli.hosts or cli.demo:
            raise UsageError("two files to validate", hint="name one, as FILE or with --hosts")
        cli = replace(cli, hosts=path)
    from console.config.check import notify_command, plain_secrets, shared_ports

    found, presets = _checked(cli)
    warnings = [*shared_ports(found), *notify_command(found), *plain_secrets(found)]
    if not found.hosts:
        warnings.append(f"{found.path}: names no host: nothing is managed")
    for text in warnings:
        warn(text, head="warning")
    counts = {
        "hosts": len(found.hosts),
        "servers": len(found.servers),
        "presets": sum(1 for _ in presets),
    }
    if cli.json:
        print_json({"ok": True, "path": str(found.path), **counts, "warnings": warnings})
    else:
        words = ", ".join(f"{n} {name[:-1] if n == 1 else name}" for name, n in counts.items())
        say(f"{found.path}: {words}, {'see above' if warnings else 'all good'}")
    return 0


def _checked(cli: Cli) -> tuple[Config, Presets]:
    """The hosts.yaml in use and the presets.

    Raises:
        ConfigError: all that is wrong with them.
    """
    from console.config.check import check_console, check_presets, check_secrets

    mistakes = Mistakes()
    found = cli.config(mistakes=mistakes)
    presets = cli.presets(quiet=True)
    for error in presets.broken.values():
        mistakes.add(error)
    check_presets(found, presets, mistakes)
    check_secrets(found, presets, mistakes)
    check_console(found, mistakes)
    mistakes.tell()
    return found, presets


@config.command("init")
@click.argument("path", type=click.Path(path_type=Path), required=False)
@click.option("--from-ssh", is_flag=True, help="Propose the hosts of ~/.ssh/config.")
@common()
def config_init(cli: Cli, path: Path | None, from_ssh: bool) -> int:
    """Write a first hosts.yaml; never over one that exists."""
    from console.config import config_dir
    from console.config.whole import write_new

    text = _from_ssh() if from_ssh else FIRST
    target = path or cli.hosts or config_dir() / "hosts.yaml"
    write_new(target, text)
    note = _passed_over(target)
    if cli.json:
        print_json({"written": str(target), "note": note})
    else:
        say(f"written {target}; next: specops config validate --hosts {target}")
        if note:
            warn(note, head="note")
    return 0


def _passed_over(target: Path) -> str:
    """Why a file just written is not the one in use, or nothing."""
    from console.config.paths import choose

    inuse = choose(None).path
    if inuse == Path("hosts.yaml").absolute() != target.absolute():
        return "./hosts.yaml comes first here"
    return ""


def _from_ssh() -> str:
    """A hosts.yaml of the operator's own ssh configuration; hosts left out are said."""
    from console.config.first import ssh_config, ssh_hosts
    from console.config.sshconfig import document

    found = ssh_hosts()
    if not found:
        hint = "only Host entries without wildcards name a host"
        raise UsageError("names no host", place=str(ssh_config()), hint=hint)
    for one in found:
        if one.why_not:
            click.echo(f"{one.name}: left out, {one.why_not}", err=True)
    return document(found)
