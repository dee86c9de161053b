"""``:`` lines: places of the console itself, actions with their dialog, and any other command."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from console.errors import SpecopsError, UsageError
from console.keys import BY_ID, CLI_WORDS, OWN_WORDS
from console.screens.completing import CHANGES_FILES, NEVER_END
from console.text import lines

if TYPE_CHECKING:
    from console.app import SpecopsApp
    from console.screens.reading import Reading


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(message, place=f":{self.prog}")


def _launch_parser(word: str) -> _Parser:
    """The options that a launch takes here; the same words as on the command line."""
    parser = _Parser(prog=word, add_help=False)
    parser.add_argument("server")
    parser.add_argument("--preset")
    parser.add_argument("--nccl")
    for ignored in ("--wait", "--yes", "--dry-run"):  # the dialog asks and shows all of that
        parser.add_argument(ignored, action="store_true")
    parser.add_argument("--skip-preflight", action="store_true")
    return parser


class CommandLine:
    """Runs what was typed after ``:``, and remembers what was typed on any line."""

    def __init__(self, app: SpecopsApp) -> None:
        self._app = app
        self._typed: dict[str, list[str]] = {}

    def history(self, what: str) -> list[str]:
        """What was typed before on a line of this kind, newest first."""
        return self._typed.setdefault(what, [])

    def given(self, text: str) -> None:
        """A line was sent; what is wrong with it is said."""
        history = self.history(":")
        if not history or history[0] != text:
            history.insert(0, text)
        try:
            self.run(text)
        except SpecopsError as error:
            self._app.say(str(error), "bad")

    def run(self, text: str) -> None:
        """One line.

        Raises:
            UsageError: not a command line, or a name that does not exist.
        """
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"{error}", place=f":{text}") from error
        word, rest = words[0], words[1:]
        if word in ("q", "quit", "exit"):
            self._app.places.leave()
        elif word == "specops" and rest:
            self.run(shlex.join(rest))
        elif self._app.read_only and _changes(word, rest):
            self._app.say(f"{word}: this console is read-only", "warn")
        elif word in OWN_WORDS:
            self._own(word, rest)
        elif (action := BY_ID.get(word)) is not None and action.dangerous:
            self._act(word, rest)
        elif word == "bench":
            self._bench(rest)
        elif word == "logs" and len(rest) == 1:
            server = self._app.config.server(rest[0])
            self._app.places.log(server.host, server.name)
        elif word == "watch" and len(rest) == 1:
            server = self._app.config.server(rest[0])
            self._app.places.server(server.host, server.name)
        elif word in NEVER_END:
            raise UsageError(f"{word} {NEVER_END[word]}", place=":", hint="run it in a shell")
        elif word in CLI_WORDS:
            self._show(text)
        else:
            raise UsageError(f"no command '{word}'", place=":", hint=_near(word))

    def _own(self, word: str, rest: list[str]) -> None:
        app = self._app
        if word == "export":
            app.places.export()
        elif word == "hosts":
            app.places.wizard()
        elif not rest:
            raise UsageError(f"{word} what?", place=f":{word}")
        elif word == "host":
            app.places.host(app.config.host(rest[0]).name)
        elif word == "server":
            server = app.config.server(rest[0])
            app.places.server(server.host, server.name)
        elif word == "open":
            path = Path(rest[0]).expanduser()
            if not path.is_file():
                raise UsageError("no such file", place=str(path))
            app.places.file(path)
        elif word == "theme":
            app.places.theme(rest[0])
        elif word == "seek":
            app.places.seek(rest[0])

    def _bench(self, rest: list[str]) -> None:
        from console.planning.measuring import Load, levels  # noqa: PLC0415 - only for this word

        parser = _Parser(prog="bench", add_help=False)
        parser.add_argument("server")
        parser.add_argument("--concurrency", default="")
        parser.add_argument("--requests", type=int, default=4)
        parser.add_argument("--tokens", type=int, default=128)
        parser.add_argument("--against")
        given = parser.parse_args(rest)
        server = self._app.config.server(given.server)
        if given.against:
            hint = f"specops bench {server.name} --against {given.against}, in a shell"
            raise UsageError("a comparison relaunches many times", place=":bench", hint=hint)
        load = Load(levels(given.concurrency or "1,8,32"), given.requests, given.tokens)
        asked = load if len(rest) > 1 else None
        if not (1 <= load.per_worker <= 1000 and 2 <= load.tokens <= 100_000):
            raise UsageError("1 to 1000 requests of 2 to 100000 tokens", place=":bench")
        self._app.places.bench(server.host, server.name, asked)

    def _act(self, word: str, rest: list[str]) -> None:
        """A command that changes a host: the same plan and dialog as its key."""
        app = self._app
        if app.read_only:
            app.say(f"{word}: this console is read-only", "warn")
        elif word in ("launch", "relaunch", "stop"):
            given = _launch_parser(word).parse_args(rest)
            server = app.config.server(given.server)
            skip = given.skip_preflight
            wish = {"speculative": given.preset, "nccl": given.nccl, "skip_preflight": skip}
            options = {name: value for name, value in wish.items() if value and word != "stop"}
            app.propose(word, server.host, server.name, **options)
        elif word == "kill-zombies":
            names = [name for name in rest if not name.startswith("-")]
            if not names:
                raise UsageError("kill-zombies on which host?", place=":kill-zombies")
            app.doing.propose_on([app.config.host(name).name for name in names], word)
        elif word == "reset-gpu":
            words = [name for name in rest if not name.startswith("-")]
            if len(words) != 2 or not words[1].isdecimal():
                raise UsageError("which device? HOST INDEX", place=":reset-gpu")
            host = app.config.host(words[0]).name
            app.propose(word, host, None, gpu=int(words[1]))
        elif word in ("resume", "undo") and rest and not rest[0].startswith("-"):
            app.propose(word, app.doing.hosts_of_plans.get(rest[0]), None, plan_id=rest[0])
        else:
            raise UsageError(f"use the key for {word}", place=f":{word}", hint="? shows it")

    def _show(self, text: str) -> None:
        """Run it behind a dialog that stands at once, so that keys typed on are for it."""
        from console.screens.reading import Reading  # noqa: PLC0415 - only when asked for

        reading = Reading(f":{text} …", [("it runs; Esc leaves it running", "dim")])
        self._app.push_screen(reading)
        run = self._run(text, reading)
        self._app.run_worker(run, group="command", exit_on_error=False)

    async def _run(self, text: str, reading: Reading) -> None:
        from console.screens.reading import Reading  # noqa: PLC0415 - only when asked for

        app = self._app
        title, rows = f":{text}", []
        try:
            await app.opened.wait()
            if app.actions is not None:
                output = await app.actions.run_command(text)
                title += f" (exit {output.code})"
                rows = [(part, "plain") for part in lines(output.text.rstrip("\n"))]
        except SpecopsError as error:
            rows = [(str(error), "bad")]
        if reading.is_attached:
            reading.show(title, rows)
        else:
            app.push_screen(Reading(title, rows, unasked=True))


def _changes(word: str, rest: list[str]) -> bool:
    """Whether a command that has no plan in the console changes a host or hosts.yaml."""
    purges = word == "doctor" and any(part.startswith("--purge") for part in rest)
    return (word in CHANGES_FILES or purges) and "--dry-run" not in rest


def _near(word: str) -> str:
    from console.config import nearest  # noqa: PLC0415 - imports yaml's reader

    return nearest(word, [*CLI_WORDS, *OWN_WORDS])
