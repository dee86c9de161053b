"""``specops doctor``: is the installation sound, are hosts reached; mend a terminal, purge."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from console.cli.common import Cli, ask, common, run_async
from console.cli.output import paint, print_json, say
from console.errors import SpecopsError, UsageError, worst

if TYPE_CHECKING:
    from collections.abc import Iterator

    from console.remote import Remote

_ROOM = 1 << 20
"""Bytes below which a disk is full: a plan's lines take some kilobytes."""
COLOURS = {"ok": "green", "warning": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. ``id`` is stable; ``fix`` says what to do where it is not ok."""

    id: str
    state: Literal["ok", "warning", "failed"]
    message: str
    fix: str = ""


@click.command()
@click.argument("names", nargs=-1, metavar="[HOST…]")
@click.option("--terminal", is_flag=True, help="Mend a terminal that a killed console left broken.")
@click.option("--purge", metavar="HOST", help="Remove everything that specops keeps on a host.")
@click.option("--dry-run", is_flag=True, help="With --purge: only list; exit 1 if it would act.")
@click.option("--yes", is_flag=True, help="With --purge: do not ask.")
@click.option("--force", is_flag=True, help="With --purge: although its servers run.")
@common()
def doctor(
    cli: Cli,
    names: tuple[str, ...],
    terminal: bool,
    purge: str | None,
    dry_run: bool,
    yes: bool,
    force: bool,
) -> int:
    """Check this installation, the configuration, and the hosts that are named.

    Exit status 1 when something has failed, 3 when a named host is not reached.
    """
    if terminal:
        if names or purge:
            raise UsageError("--terminal goes alone", hint="run the others after it")
        from console.cli.mend import mend

        mend()
        return 0
    if purge is not None:
        if names:
            raise UsageError("--purge takes one host", hint="name no other")
        from console.cli.purge import purge_host

        return run_async(purge_host(cli, purge, dry_run=dry_run, yes=yes, force=force))
    if dry_run or yes or force:
        raise UsageError("--dry-run, --yes and --force go with --purge")
    checks = [*installation(), *configuration(cli), *state()]
    codes: list[int] = []
    if names:
        found, codes = _hosts(cli, names)
        checks += found
    if cli.json:
        rows = [{"id": c.id, "state": c.state, "message": c.message, "fix": c.fix} for c in checks]
        print_json({"ok": all(c.state != "failed" for c in checks), "checks": rows})
    else:
        say_checks(checks)
    return worst([*codes, int(any(c.state == "failed" for c in checks))])


def say_checks(checks: list[Check]) -> None:
    """The checks for people, each with what to do."""
    columns = max(len(check.id) for check in checks)
    for check in checks:
        head = f"{check.state:<8} {check.id:<{columns}}"
        say(f"{paint(head, COLOURS[check.state])}  {check.message}")
        if check.fix and check.state != "ok":
            say(f"{'':<{columns + 11}}→ {check.fix}")


# ---- this machine


def installation() -> Iterator[Check]:
    """The package itself: ours, alone under its name, with what it needs."""
    import console
    from console import __version__

    here = Path(console.__file__ or "").resolve().parent
    version = _version("specops")
    if version is None:
        yield Check("installation.package", "warning", f"specops {__version__} runs from {here}, "
                    "not installed", "pip install it, or pipx")  # fmt: skip
    elif version != __version__:
        yield Check("installation.package", "failed", f"{here} is {__version__}, the installed "
                    f"package is {version}", "reinstall specops")  # fmt: skip
    else:
        yield Check("installation.package", "ok", f"specops {__version__} in {here}")
    others = shadows(here, sys.path)
    if _version("console") is not None or others:
        where = f" ({others[0]})" if others else ""
        yield Check("installation.shadowed", "failed", "another package named 'console' is "
                    f"in this environment{where}", "a venv of its own for specops")  # fmt: skip
    else:
        yield Check("installation.shadowed", "ok", "no other package of the name 'console'")
    number = ".".join(map(str, sys.version_info[:3]))
    fine = sys.version_info >= (3, 11)
    yield Check("installation.python", "ok" if fine else "failed", f"python {number}",
                "" if fine else "python 3.11 or later")  # fmt: skip
    yield from _requirements()


def shadows(own: Path, path: list[str]) -> list[Path]:
    """Other modules or packages called ``console`` on a search path."""
    names = ("console/__init__.py", "console.py")
    candidates = [Path(entry or ".") / name for entry in path for name in names]
    return [c for c in candidates if c.is_file() and c.resolve().parent != own]


def _version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _requirements() -> Iterator[Check]:
    """What the package says it needs, and whether the extra for the bundled server is there."""
    import re
    from importlib import metadata

    try:
        wanted = metadata.requires("specops") or []
    except metadata.PackageNotFoundError:
        return
    core = [re.split(r"[<>=!~;\[ ]", w, maxsplit=1)[0] for w in wanted if "extra ==" not in w]
    extra = [re.split(r"[<>=!~;\[ ]", w, maxsplit=1)[0] for w in wanted if "'server'" in w]
    missing = [name for name in core if _version(name) is None]
    have = ", ".join(f"{name} {_version(name)}" for name in core if name not in missing)
    if missing:
        yield Check("installation.dependencies", "failed", f"missing: {', '.join(missing)}",
                    "reinstall specops")  # fmt: skip
    else:
        yield Check("installation.dependencies", "ok", have)
    lacks = [name for name in extra if _version(name) is None]
    yield Check(
        "installation.server",
        "warning" if lacks else "ok",
        f"the bundled server lacks {', '.join(lacks)}" if lacks else "the bundled server can run",
        "pip install 'specops[server]', where it shall run here" if lacks else "",
    )


def configuration(cli: Cli) -> Iterator[Check]:
    """The hosts.yaml in use, the presets, and that the two fit."""
    try:
        config = cli.config()
    except SpecopsError as error:
        yield Check("config.hosts", "failed", f"{error.place}: {error.message}", error.hint)
        return
    words = f"{len(config.hosts)} hosts, {len(config.servers)} servers"
    yield Check("config.hosts", "warning" if config.note else "ok", f"{config.path}: {words}"
                + (f"; {config.note}" if config.note else ""), "specops config path")  # fmt: skip
    from console.config.check import check_presets
    from console.errors import Mistakes

    presets, mistakes = cli.presets(quiet=True), Mistakes()
    check_presets(config, presets, mistakes)
    told = [*mistakes, *presets.broken.values()]
    if told:
        words = "; ".join(f"{one.place}: {one.message}" for one in told)
        state: Literal["warning", "failed"] = "failed" if list(mistakes) else "warning"
        yield Check("config.presets", state, words, told[0].hint)
        return
    own = sum(1 for preset in presets if preset.origin != "shipped")
    yield Check("config.presets", "ok", f"{len(presets.by_key)} presets, {own} your own")


def state() -> Iterator[Check]:
    """Where this operator's audit file is, and whether it can be written."""
    import os
    import shutil

    from console.actions.audit import default_path

    path = default_path()
    place = path if path.exists() else path.parent
    while not place.exists() and place != place.parent:
        place = place.parent
    if not os.access(place, os.W_OK):
        yield Check("state.audit", "failed", f"{path} cannot be written: nothing may be changed "
                    "on any host", f"make {place} writable")  # fmt: skip
    elif shutil.disk_usage(place).free < _ROOM:
        yield Check("state.audit", "failed", f"{path}: its disk is full: nothing may be changed on "
                    "any host", "free the disk, or set XDG_STATE_HOME")  # fmt: skip
    elif path.exists() and path.stat().st_mode & 0o077:
        yield Check("state.audit", "warning", f"others can read {path}", f"chmod 600 {path}")
    else:
        yield Check("state.audit", "ok", str(path))


# ---- hosts


def _hosts(cli: Cli, names: tuple[str, ...]) -> tuple[list[Check], list[int]]:
    config = cli.config()
    answers = run_async(ask(config, cli.select(config, names), look))
    checks: list[Check] = []
    for answer in answers:
        name = f"host.{answer.host.name}"
        if answer.error is not None:
            checks.append(Check(name, "failed", answer.error.message, answer.error.hint))
        else:
            checks.append(Check(name, "ok", answer.value or ""))
    return checks, [3 for answer in answers if answer.error is not None]


async def look(remote: Remote) -> str:
    """One host in a line: who we are there, what it runs, how its GPUs are seen."""
    from console.text import clean

    hello = remote.hello
    snapshot = await remote.snapshot()
    if snapshot.gpu_error:
        gpus = f"GPUs unknown: {snapshot.gpu_error}"
    elif snapshot.gpus:
        gpus = f"{len(snapshot.gpus)} GPUs through {snapshot.gpu_source}"
    else:
        gpus = "no NVIDIA GPU"
    parts = (
        f"{hello.user}@{hello.hostname}",
        f"python {hello.python}" if hello.python else "no python: looking only",
        "systemd" if hello.systemd else "no systemd",
        gpus,
        f"keeps its state in {hello.state_dir}" if hello.state_dir else "",
    )
    return clean(", ".join(part for part in parts if part))
