"""The one table of actions: bindings, key bar, help, palette, ``:`` words and docs/keys.md.

Lower case looks, upper case changes a host (``G``, ``E`` and ``N`` move, as everywhere). No Ctrl
letter is the only way to anything: tmux and zellij take them. ``--read-only`` has no dangerous
action at all.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace

from console.errors import ConfigError, Mistakes

LISTS = ("fleet", "host", "presets", "activity", "bench")
PLACES = ("fleet", "host", "server", "log", "presets", "activity", "bench")
"""Screens that show a place; dialogs are scopes of their own."""

SCOPES = (*PLACES, "plan", "help")

_NAMES = {
    "question_mark": "?",
    "colon": ":",
    "slash": "/",
    "exclamation_mark": "!",
    "less_than_sign": "<",
    "greater_than_sign": ">",
    "ampersand": "&",
    "asterisk": "*",
    "backslash": "\\",
    "space": "Space",
    "enter": "Enter",
    "escape": "Esc",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "tab": "Tab",
}


@dataclass(frozen=True, slots=True)
class Action:
    """One thing an operator can do.

    ``keys`` are Textual key names; ``scopes`` the screens that have it; ``dangerous`` changes a
    host; ``cli`` is the command of the same meaning; ``bar`` orders the key bar (lower is further
    left, ``None`` is only in the help).
    """

    id: str
    title: str
    keys: tuple[str, ...]
    scopes: tuple[str, ...]
    help: str
    dangerous: bool = False
    cli: str | None = None
    bar: int | None = None

    @property
    def method(self) -> str:
        """The name of the screen's method behind it, without ``action_``."""
        return self.id.replace("-", "_")

    @property
    def shown_keys(self) -> str:
        """The keys as an operator reads them."""
        return " ".join(key_name(key) for key in self.keys)


def key_name(key: str) -> str:
    """A Textual key name as printed on the key."""
    return _NAMES.get(key, key.upper() if key[0] == "f" and key[1:].isdigit() else key)


_SIGNS = {sign: name for name, sign in _NAMES.items() if len(sign) == 1 and sign.isascii()}
"""Characters that are keys by another name: one may be given as either."""


def _is_key(key: str) -> bool:
    """Whether a terminal can ever give a key of that name."""
    from textual.keys import Keys  # noqa: PLC0415 - only where keys are remapped

    *with_it, last = key.split("+") if len(key) > 1 else [key]
    if not set(with_it) <= {"ctrl", "shift", "alt", "super", "meta", "hyper"}:
        return False
    if len(last) == 1:
        return last.isprintable()
    known = {one.value for one in Keys} | {action_key for a in TABLE for action_key in a.keys}
    if {last, key} & (known | set(_NAMES)):
        return True
    try:
        unicodedata.lookup(last.replace("_", " "))  # dollar_sign, as Textual calls it
    except KeyError:
        return False
    return True


_ON_SERVER = ("fleet", "host", "server", "log")

TABLE: tuple[Action, ...] = (
    Action("help", "help", ("question_mark", "f1"), PLACES, "every key of this screen", bar=0),
    Action("command", "command", ("colon",), PLACES, "any command of the command line", bar=1),
    Action("open", "open", ("enter",), LISTS, "go into what the cursor is on", bar=2),
    Action("back", "back", ("escape",), (*PLACES, "help"),
           "end a search, clear a filter, go one place back; never quits"),
    Action("logs", "logs", ("l",), ("fleet", "host", "server"), "the log of this server",
           cli="logs", bar=3),
    # what changes a host
    Action("relaunch", "relaunch", ("R",), _ON_SERVER,
           "stop, clean, verify memory, launch and watch, with the presets it has; p takes others",
           dangerous=True, cli="relaunch", bar=5),
    Action("launch", "launch", ("L",), _ON_SERVER,
           "launch this server with its presets; p takes others",
           dangerous=True, cli="launch", bar=6),
    Action("stop", "stop", ("S",), _ON_SERVER,
           "drain and stop this server; of one that failed: note that it was seen",
           dangerous=True, cli="stop", bar=8),
    Action("kill-zombies", "kill zombies", ("Z",), ("fleet", "host", "server"),
           "remove every killable zombie of this host, of the marked ones, or of the server whose "
           "screen it is, and verify memory",
           dangerous=True, cli="kill-zombies", bar=4),
    Action("kill", "kill", ("K",), ("host",), "end the process at the cursor, or the marked ones",
           dangerous=True, bar=5),
    Action("clean", "clean", ("C",), ("fleet", "host"), "remove what dead servers left behind",
           dangerous=True, bar=9),
    Action("reset-gpu", "reset gpu", ("D",), ("host",),
           "reset the devices whose driver asks for it and that nothing holds; each is typed",
           dangerous=True, cli="reset-gpu", bar=4),
    Action("fix", "apply fix", ("F",), ("server", "log"),
           "relaunch with the change that the diagnosis proposes", dangerous=True, bar=3),
    Action("undo", "undo", ("U",), ("activity",), "undo what can be undone of this plan",
           dangerous=True, cli="undo", bar=5),
    Action("resume", "resume", ("M",), ("activity",), "finish this plan where it was interrupted",
           dangerous=True, cli="resume", bar=6),
    # places
    Action("go-fleet", "fleet", ("1",), PLACES, "all hosts", cli="status"),
    Action("go-host", "host", ("2",), PLACES, "devices, processes and zombies of one host",
           cli="zombies"),
    Action("go-log", "log", ("3",), PLACES, "the log of the server last looked at"),
    Action("presets", "presets", ("p", "4"), PLACES, "browse, edit, compare and save presets",
           cli="presets", bar=10),
    Action("activity", "activity", ("a", "5"), PLACES, "runs, and what was done to hosts, by whom",
           cli="runs", bar=12),
    Action("shell", "shell", ("exclamation_mark",), ("fleet", "host", "server", "log"),
           "ssh to this host; the console comes back when it ends", bar=13),
    # lists
    Action("down", "down", ("j", "down"), (*PLACES, "help", "plan"), "one line down"),
    Action("up", "up", ("k", "up"), (*PLACES, "help", "plan"), "one line up"),
    Action("page-down", "page down", ("pagedown",), (*PLACES, "help", "plan"), "one page down"),
    Action("page-up", "page up", ("pageup",), (*PLACES, "help", "plan"), "one page up"),
    Action("top", "first", ("g", "home"), (*PLACES, "help"), "first line"),
    Action("bottom", "last", ("G", "end"), (*PLACES, "help"), "last line"),
    Action("filter", "filter", ("slash",), LISTS,
           "keep matching rows: words, !word, column:word, column>number; memory>80 !ready", bar=7),
    Action("sort", "sort", ("o",), ("fleet", "host", "activity", "bench", "presets"),
           "choose the column to sort by; the same again reverses"),
    Action("mark", "mark", ("space",), ("fleet", "host", "log", "bench"),
           "mark this row or line"),
    Action("mark-all", "mark all", ("asterisk",), ("fleet", "host", "bench"),
           "mark every row shown"),
    Action("unmark", "unmark", ("backslash",), ("fleet", "host", "log", "bench"),
           "take every mark away"),
    Action("refresh", "refresh", ("r", "f5"), ("fleet", "host", "server", "activity", "bench"),
           "sample now; a lost host is tried again at once"),
    Action("copy", "copy", ("c",), PLACES,
           "copy what the cursor is on to your clipboard (OSC 52)"),
    Action("notices", "notices", ("n",),
           ("fleet", "host", "server", "presets", "activity", "bench"),
           "what happened while you looked elsewhere"),
    Action("bench", "bench", ("b",), ("fleet", "host", "server", "log", "bench"),
           "what was measured of this server, as plots; there: measure it now",
           cli="bench", bar=14),
    Action("diff", "diff", ("d",), ("server", "presets"),
           "what differs: this launch from its presets, a preset from another", bar=9),
    Action("whole", "whole command", ("v",), ("server", "plan"), "the command line in full"),
    Action("next-error", "next error", ("e",), ("server", "log"), "the next error in the log",
           cli="diagnose", bar=3),
    Action("previous-error", "previous error", ("E",), ("log",), "the previous error"),
    # log
    Action("follow", "follow", ("f",), ("log",), "stay at the end of the log, or pause", bar=2),
    Action("search", "search", ("slash",), ("log",), "find text, or /regex/", bar=4),
    Action("next-hit", "next hit", ("n",), ("log",), "next hit of the search"),
    Action("previous-hit", "previous hit", ("N",), ("log",), "previous hit of the search"),
    Action("narrow", "filter", ("ampersand",), ("log",),
           "show only matching lines; !text shows the others; empty shows all", bar=7),
    Action("fold", "unfold", ("o",), ("log",),
           "show or fold frames of libraries, and looks at health and metrics", bar=9),
    Action("timestamps", "time", ("t",), ("log",), "show or hide timestamps", bar=10),
    Action("wrap", "wrap", ("w",), ("log",), "wrap long lines, or cut them", bar=11),
    Action("left", "left", ("left",), ("log",), "twenty columns left"),
    Action("right", "right", ("right",), ("log",), "twenty columns right"),
    Action("save", "save", ("s",), ("log",), "write what is shown to a file", bar=12),
    # presets
    Action("edit", "edit", ("e",), ("presets",), "edit this preset (a shipped one: a copy)", bar=3),
    Action("use", "use", ("u",), ("presets",),
           "make this preset the server's own in hosts.yaml: what its next launch takes", bar=4),
    Action("history", "history", ("h",), ("presets",), "the runs that used this preset", bar=11),
    # dialogs
    Action("confirm", "do it", ("y",), ("plan",), "do exactly these steps", dangerous=True, bar=0),
    Action("dry-run", "dry run to file", ("d",), ("plan",), "write the plan as JSON, do nothing",
           bar=1),
    Action("choose", "presets", ("p",), ("plan",), "choose other presets", bar=1),
    Action("dump", "stacks first", ("t",), ("plan",),
           "before a server that hangs is ended, keep where it hangs (py-spy), or not", bar=1),
    Action("cancel", "cancel", ("escape", "enter", "q"), ("plan",), "leave without doing anything",
           bar=2),
    Action("quit", "quit", ("q", "ctrl+c"), PLACES,
           "leave; hosts and servers go on as they are", bar=15),
)  # fmt: skip

REPLAY: tuple[Action, ...] = (
    Action("pause", "pause", ("space",), PLACES, "hold the recording, or go on", bar=1),
    Action("earlier", "-10 s", ("left",), PLACES, "ten seconds back", bar=2),
    Action("later", "+10 s", ("right",), PLACES, "ten seconds on", bar=2),
    Action("much-earlier", "-10 min", ("left_curly_bracket",), PLACES, "ten minutes back"),
    Action("much-later", "+10 min", ("right_curly_bracket",), PLACES, "ten minutes on"),
    Action("slower", "slower", ("less_than_sign",), PLACES, "half the speed", bar=3),
    Action("faster", "faster", ("greater_than_sign",), PLACES, "twice the speed", bar=3),
)  # fmt: skip
"""What a recording adds; while one plays, its keys are not what they are else."""

BY_ID: Mapping[str, Action] = {action.id: action for action in TABLE}


@dataclass(frozen=True)
class KeyMap:
    """The table as it applies now: remapped by ``keys:`` of hosts.yaml, reduced by read-only."""

    table: tuple[Action, ...] = TABLE
    removed: tuple[Action, ...] = ()
    """What this console does not do; its keys are bound to nothing."""

    @classmethod
    def make(
        cls,
        changes: Mapping[str, str] | None = None,
        *,
        read_only: bool = False,
        replay: bool = False,
    ) -> KeyMap:
        """The map for a configuration. ``changes`` maps an action's id to keys, comma-separated.

        A ``replay`` has keys of its own, and nothing that changes a host.

        Raises:
            ConfigError: no such action, or a key that another action of the same screen has.
        """
        table = list(TABLE)
        mistakes = Mistakes()
        for name, keys in (changes or {}).items():
            if name not in BY_ID:
                from console.config.nodes import nearest  # noqa: PLC0415 - YAML, after a frame

                hint = nearest(name, BY_ID)
                mistakes.add(ConfigError(f"no action '{name}'", place=f"keys.{name}", hint=hint))
                continue
            at = next(i for i, action in enumerate(table) if action.id == name)
            parsed = tuple(_SIGNS.get(key.strip(), key.strip()) for key in keys.split(",")
                           if key.strip())  # fmt: skip
            for key in parsed:
                if not _is_key(key):
                    hint = "a character, or a name such as f2, space or ctrl+x"
                    place = f"keys.{name}"
                    mistakes.add(ConfigError(f"'{key}' is not a key", place=place, hint=hint))
            table[at] = replace(table[at], keys=parsed)
        if replay:
            taken = {key for action in REPLAY for key in action.keys}
            table = [action for action in table if not taken & set(action.keys)]
            table.extend(REPLAY)
        removed = tuple(
            a for a in table
            if (a.dangerous or a.id == "shell") and (read_only or replay)
        )  # fmt: skip
        made = cls(tuple(a for a in table if a not in removed), removed)
        for (key, one, other), scope in made.clashes().items():
            mine = next((name for name in (one, other) if name in (changes or {})), "")
            clash = f"key {key_name(key)} is both {one} and {other} ({scope})"
            place = f"keys.{mine}" if mine else "keys"
            mistakes.add(ConfigError(clash, place=place, hint="give one of them another key"))
        mistakes.tell()
        return made

    def clashes(self) -> dict[tuple[str, str, str], str]:
        """Keys that two actions have on the same screen, with the first such screen."""
        found: dict[tuple[str, str, str], str] = {}
        for scope in SCOPES:
            seen: dict[str, str] = {}
            for action in self.on(scope):
                for key in action.keys:
                    if key in seen:
                        found.setdefault((key, seen[key], action.id), scope)
                    seen.setdefault(key, action.id)
        return found

    def on(self, scope: str) -> tuple[Action, ...]:
        """The actions of a screen, in the table's order."""
        return tuple(action for action in self.table if scope in action.scopes)

    def bar(self, scope: str) -> tuple[Action, ...]:
        """The actions of a screen's key bar, most wanted first."""
        here = "" if scope == "bench" else scope  # there the key measures
        shown = [a for a in self.on(scope) if a.bar is not None and a.id != here]
        return tuple(sorted(shown, key=lambda action: action.bar or 0))

    def lacking(self, scope: str, key: str) -> Action | None:
        """What a key would do on a screen, were it not taken from this console."""
        return next((a for a in self.removed if scope in a.scopes and key in a.keys), None)

    def has(self, name: str) -> bool:
        """Whether the action exists here (not, for a dangerous one, under read-only)."""
        return any(action.id == name for action in self.table)


CLI_WORDS: Mapping[str, str] = {
    "status": "GPUs, servers and zombies per host",
    "zombies": "zombies with evidence",
    "kill-zombies": "kill, clean and verify",
    "reset-gpu": "reset a device whose driver asks for it",
    "preflight": "whether a launch would work",
    "launch": "launch a server",
    "stop": "stop a server",
    "relaunch": "stop, clean, verify, launch, watch",
    "watch": "the phases of a start",
    "logs": "the log of a server",
    "diagnose": "the one error that matters",
    "bench": "measure a server",
    "presets": "list, show, save, diff",
    "runs": "runs of a host",
    "resume": "finish an interrupted plan",
    "undo": "undo a plan",
    "config": "path, print, validate",
    "doctor": "what is wrong with this set-up",
    "report": "a masked bundle of a run",
    "adopt": "take over a server started by hand",
}
"""The words of the command line that ``:`` completes, with what they do."""

OWN_WORDS: Mapping[str, str] = {
    "host": "go to a host",
    "server": "go to a server",
    "open": "a file of this machine, as a log",
    "theme": "change the colours",
    "hosts": "choose hosts from ~/.ssh/config and add them to hosts.yaml",
    "export": "write this screen as SVG",
    "seek": "to a moment of a recording: 1:30:00, +90, -10:00, or @02:41:07 by the clock on it",
    "q": "quit",
}
"""The words that only ``:`` knows."""


def document() -> str:
    """docs/keys.md, whole."""
    out = [
        "# Keys",
        "",
        "Generated from `console/keys.py` by `make docs`. Lower case looks, upper case changes a"
        " host (`G`, `E` and `N` only move). Enter is never yes: `y` confirms a plan, Esc and"
        " Enter leave it."
        " With `--read-only` the actions marked ● and the shell do not exist; their keys say so.",
        "",
        "`hosts.yaml` remaps by id: `keys: {relaunch: X, follow: \"f,f2\"}`. A key is a"
        " character or a name (`f2`, `space`, `ctrl+x`).",
    ]  # fmt: skip
    for scope in SCOPES:
        out += ["", f"## {scope}", "", "| key | id | does | command |", "|---|---|---|---|"]
        for action in TABLE:
            if scope in action.scopes:
                keys = " ".join(f"`{key_name(key)}`" for key in action.keys).replace("|", "\\|")
                danger = " ●" if action.dangerous else ""
                cli = f"`specops {action.cli}`" if action.cli else ""
                out.append(f"| {keys} | {action.id}{danger} | {action.help} | {cli} |")
    return "\n".join(out) + "\n"
