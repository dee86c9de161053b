"""Textual's terminal driver for a terminal that may go away: a closed window, a lost ssh.

Textual's own writer thread dies of the first write that fails; the screen then waits for it for
ever and no signal is heard any more, while the input thread reads the end of file at full speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import IO, TYPE_CHECKING, Any

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


class TerminalDriver(LinuxDriver):
    """Ends the application when its terminal is gone."""

    def __init__(self, app: App[Any], **options: Any) -> None:
        super().__init__(app, **options)
        self._file: Any = _Screen(self._file, self._gone)

    def _gone(self) -> None:
        """Called in the writer's thread."""
        self._loop.call_soon_threadsafe(self._app.exit)
