"""Textual's terminal driver for a terminal that may go away, and for operators who type fast.

A terminal goes away with a closed window or a lost ssh.

Textual's own writer thread dies of the first write that fails; the screen then waits for it for
ever and no signal is heard any more, while the input thread reads the end of file at full speed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import IO, TYPE_CHECKING, Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.app import App


class _Screen:
    """The terminal's file: what can no longer be written is dropped, and told once."""

    def __init__(self, file: IO[str], gone: Callable[[], None]) -> None:
        self._file = file
        self._tell: Callable[[], None] | None = gone

    def write(self, text: str) -> None:
        """Write, while there is a terminal."""
        self._do(lambda: self._file.write(text))

    def flush(self) -> None:
        """Send what was written."""
        self._do(self._file.flush)

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._file.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self._file.isatty()

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError:
            tell, self._tell = self._tell, None
            if tell is not None:
                tell()


ESC = "\x1b"
_LONGER = "[ONPX]^_"
"""What begins a longer sequence when it comes after Esc."""


class KeyParser(XTermParser):
    """Esc and a key right after it are two keys, which a slow link brings in one piece.

    Textual takes them for Alt and the key, and where it knows no such key it drops the Esc. With a
    letter or digit they stay that: it may be a key of its own, else ``Keyboard`` makes it two.
    """

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        after = sequence[1:] if sequence[:1] == ESC and len(sequence) == 2 else ""
        if after and (after.isprintable() or after == "\r") and after not in _LONGER:
            letter = after.isalpha()
            if letter and (known := list(super()._sequence_to_key_events(sequence))):
                yield from known
                return
            sequence, alt = after, True
        for key in super()._sequence_to_key_events(sequence, alt):
            if alt and not key.key.startswith("alt+"):
                yield events.Key("escape", ESC)
            yield key


linux_driver.XTermParser = KeyParser  # type: ignore[attr-defined] # no other way


class TerminalDriver(LinuxDriver):
    """Ends the application when its terminal is gone."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._file: Any = _Screen(self._file, self._gone)

    def _gone(self) -> None:
        """Called in the writer's thread."""
        self._loop.call_soon_threadsafe(self._app.exit)
