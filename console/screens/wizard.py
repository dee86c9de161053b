"""The first start: which hosts? Those that ssh knows, chosen by hand, shown, then written once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.config.edit import edited
from console.config.first import ssh_config, ssh_hosts
from console.config.nodes import parse
from console.config.schema import HOSTNAME, NAME, USER, read_config
from console.config.sshconfig import Proposal, document, with_jumps
from console.config.whole import write_atomically, write_new
from console.errors import SpecopsError, UsageError
from console.screens.dialog import Dialog
from widgets.bars import counted
from widgets.paint import Line, Lines, fit, line, wrap
from widgets.prompt import Prompt
from widgets.words import safe

_TYPED = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<address>[^\s:]+)(?::(?P<port>\d{1,5}))?")
_NO_HOSTS = {"git"}
"""Logins of services that are no machines to manage: not chosen unless by hand."""


def typed_host(text: str) -> Proposal:
    """``[USER@]ADDRESS[:PORT]`` as a host, named by the address.

    Raises:
        UsageError: it is none.
    """
    match = _TYPED.fullmatch(text.strip())
    hint = "root@gpu1.example or gpu1:2222"
    if match is None or not HOSTNAME.fullmatch(match["address"]):
        raise UsageError(f"'{text}' is no host", hint=hint)
    address, user = match["address"], match["user"]
    if user is not None and not USER.fullmatch(user):
        raise UsageError(f"'{user}' is no user name", hint=hint)
    whole = address.replace(".", "").isdigit() or not NAME.fullmatch(address.partition(".")[0])
    name = address if whole else address.partition(".")[0]
    values: dict[str, object] = {"address": address}
    if user is not None:
        values["user"] = user
    if match["port"]:
        values["port"] = int(match["port"])
    return Proposal(name, values)


class Wizard(Dialog[Path | None]):
    """Hosts with boxes to tick; then the file as it will be; ``y`` writes it, Enter never does.

    With ``existing`` the chosen hosts are added to that file and nothing else in it is changed.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "cancel", show=False),
        Binding("j,down", "move(1)", show=False),
        Binding("k,up", "move(-1)", show=False),
        Binding("pagedown", "move(10)", show=False),
        Binding("pageup", "move(-10)", show=False),
        Binding("space", "tick", show=False),
        Binding("asterisk", "all", show=False),
        Binding("a", "add", show=False),
        Binding("enter", "on", show=False),
        Binding("y", "write", show=False),
    ]

    def __init__(self, target: Path, *, existing: Path | None = None) -> None:
        super().__init__()
        self._target, self._existing = target, existing
        self._said: Line = ()
        self._found: list[Proposal] = []
        try:
            self._found = list(ssh_hosts())
        except SpecopsError as error:
            self._said = line((f"{error.place}: {error.message}; a adds a host by hand", "dim"))
        known = self._known()
        self._found = [one for one in self._found if one.name not in known]
        if not self._found and not self._said:
            self._said = line((f"{ssh_config()} names no other host; a adds one by hand", "dim"))
        self._ticked = {
            one.name
            for one in self._found
            if not one.why_not and one.values.get("user") not in _NO_HOSTS and existing is None
        }
        self._at = 0
        self._text: str | None = None
        self._base = ""

    def _known(self) -> set[str]:
        if self._existing is None:
            return set()
        text = self._existing.read_text(encoding="utf-8")
        return set(read_config(parse(text, self._existing)).hosts)

    def heading(self) -> str:
        """What is asked."""
        return "which hosts?"

    def body(self) -> list[Widget]:
        """The list or the file, and a line for a host typed by hand."""
        return [Lines(id="content")]

    def on_mount(self) -> None:
        """Draw."""
        self.draw()

    # ---- drawing

    def draw(self) -> None:
        """The list, or the file."""
        taken = 2 if self.query(Prompt) else 0
        if self._text is None:
            count = counted(len(self._chosen()), "host")
            self.foot((f"Enter  {count}", "key"), ("Space  choose", "key"), ("*  all", "key"),
                      ("a  add one", "key"), ("Esc  later", "key"))  # fmt: skip
            width, height = self.room()
            lines = self._list(width, height - taken - 2 * bool(self._said))
        else:
            self.foot(("y  write it", "key"), ("j k  scroll", "dim"), ("[ Back ]", "focus"))
            width, _ = self.room()
            lines = [line((f"{self._target} will be:", "strong")), ()]
            rows = (part for row in self._text.splitlines() for part in wrap(row, width))
            lines += [line((safe(row), "dim" if row.lstrip()[:1] == "#" else "plain"))
                      for row in rows]  # fmt: skip
        if self._said:
            text, role = self._said[0]
            lines = [*(line((part, role)) for part in wrap(text, width, limit=2)), *lines]
        self.fill(lines, taken=taken)

    def _list(self, width: int, height: int) -> list[Line]:
        where = "added to" if self._existing else "written to"
        text = (f"The hosts that ssh knows by name. The ticked ones are {where} {self._target}, "
                "after you have seen it; until then nothing is contacted.")  # fmt: skip
        out = [line((part, "plain")) for part in wrap(text, width)]
        room = max(3, height - len(out) - 1)
        first = max(0, min(self._at - room // 2, len(self._found) - room))
        needed = {one.name for one in self._chosen()} - self._ticked
        rows = [
            self._row(at, one, needed, width)
            for at, one in enumerate(self._found[first : first + room], start=first)
        ]
        return [*out, (), *rows]

    def _row(self, at: int, one: Proposal, needed: set[str], width: int) -> Line:
        here = "▸ " if at == self._at else "  "
        if one.why_not:
            return line((here, "mark"), (fit(f" -  {safe(one.name)}", 24), "dim"),
                        (fit(f" left out: {one.why_not}", max(1, width - 26)), "dim"))  # fmt: skip
        box = "[x]" if one.name in self._ticked else "[+]" if one.name in needed else "[ ]"
        values = one.values
        way = f"{values['user']}@" if "user" in values else ""
        way += str(values.get("address", "")) + (f":{values['port']}" if "port" in values else "")
        if one.jump:
            way += f" through {one.jump}"
        if values.get("transport") == "openssh":
            way += " by the system's ssh"
        if one.name in needed:
            way += "  (others go through it)"
        return line((here, "mark"), (f"{box} ", "accent"), (fit(safe(one.name), 20), "strong"),
                    (fit(" " + safe(way), max(1, width - 26)), "dim"))  # fmt: skip

    # ---- keys

    def _chosen(self) -> tuple[Proposal, ...]:
        return with_jumps(self._found, sorted(self._ticked))

    def action_move(self, delta: int) -> None:
        """Up or down; scrolls the file."""
        if self._text is not None:
            self.query_one("#content", Lines).scroll_lines(delta)
            return
        self._at = max(0, min(len(self._found) - 1, self._at + delta))
        self.draw()

    def action_tick(self) -> None:
        """Space."""
        if self._text is None and self._found and not self._found[self._at].why_not:
            self._ticked ^= {self._found[self._at].name}
            self.action_move(1)

    def action_all(self) -> None:
        """``*``: all, or none when all are."""
        every = {one.name for one in self._found if not one.why_not}
        if self._text is None:
            self._ticked = set() if self._ticked >= every else every
            self.draw()

    def action_add(self) -> None:
        """``a``: a host typed by hand."""
        if self._text is None and not self.query(Prompt):
            prompt = Prompt("host", placeholder="root@gpu1.example or gpu1:2222", id="typed")
            self.mount(prompt, after=self.query_one("#content"))
            prompt.focus()
            self.draw()

    def on_prompt_given(self, event: Prompt.Given) -> None:
        """A host was typed, or given up."""
        event.stop()
        if event.text:
            try:
                one = typed_host(event.text)
                if any(one.name == known.name for known in self._found):
                    raise UsageError(f"there is a '{one.name}' already")
            except UsageError as error:
                self._said = line((str(error), "bad"))
                self.draw()
                return
            self._found.append(one)
            self._ticked.add(one.name)
            self._at = len(self._found) - 1
            self._said = ()
        self.set_focus(None)
        event.prompt.remove()
        self.call_after_refresh(self.draw)

    def action_on(self) -> None:
        """Enter: the file as it will be; from there back."""
        if self._text is not None:
            self._text = None
        elif not self._ticked:
            self._said = line(("no host is chosen: Space chooses, a adds one", "warn"))
        else:
            self._said = ()
            try:
                self._text = self._file(self._chosen())
            except SpecopsError as error:
                self._said = line((str(error), "bad"))
        self.draw()

    def _file(self, chosen: Sequence[Proposal]) -> str:
        """The file whole, checked as it will be when it is read."""
        if self._existing is None:
            text = document(chosen, demo=True)
        else:
            text = self._base = self._existing.read_text(encoding="utf-8")
            for one in chosen:
                text = edited(text, ("hosts", one.name), dict(one.values), place=str(self._target))
        read_config(parse(text, self._target))
        return text

    def action_write(self) -> None:
        """``y``: only what was shown, and never over another file."""
        if self._text is None:
            return
        try:
            if self._existing is None:
                write_new(self._target, self._text)
            elif self._existing.read_text(encoding="utf-8") != self._base:
                raise UsageError("was edited meanwhile: look at it again", place=str(self._target))
            else:
                write_atomically(self._target, self._text)
        except (SpecopsError, OSError) as error:
            self._said = line((str(error), "bad"))
            self.draw()
            return
        self.dismiss(self._target)

    def action_cancel(self) -> None:
        """Esc: from the file back to the list, from the list away."""
        if self._text is not None:
            self._text = None
            self.draw()
        else:
            self.dismiss(None)
