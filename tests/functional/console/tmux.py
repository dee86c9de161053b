"""A program in a real terminal: one pane of tmux, whose screen and modes can be looked at."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

PATIENCE_S = 60.0


def require_tmux() -> None:
    """Skip, or fail where everything has to run, without tmux."""
    if shutil.which("tmux") is None:
        if os.environ.get("SPECOPS_REQUIRE_HOSTS") == "1":
            pytest.fail("tmux is missing, and SPECOPS_REQUIRE_HOSTS=1 demands it")
        pytest.skip("tmux is missing: this needs a real terminal")


class Pane:
    """One terminal of tmux with a shell command in it."""

    def __init__(
        self, folder: Path, size: tuple[int, int], shell: str, env: Mapping[str, str]
    ) -> None:
        self.folder = folder
        words = [word for name, value in env.items() for word in ("-e", f"{name}={value}")]
        width, height = size
        self.tmux("new-session", "-d", "-x", str(width), "-y", str(height), *words, shell)

    def tmux(self, *words: str) -> str:
        """A command of this tmux; its output."""
        argv = ["tmux", "-S", str(self.folder / "tmux"), "-f", "/dev/null", *words]
        return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=20).stdout

    @property
    def screen(self) -> str:
        """What the terminal shows."""
        return self.tmux("capture-pane", "-p")

    def modes(self) -> dict[str, str]:
        """Modes of the terminal that a program must give back."""
        names = ("alternate_on", "cursor_flag", "mouse_any_flag", "mouse_sgr_flag",
                 "keypad_cursor_flag", "keypad_flag", "insert_flag", "wrap_flag")  # fmt: skip
        said = self.tmux("display-message", "-p", " ".join(f"#{{{name}}}" for name in names))
        return dict(zip(names, said.split(), strict=True))

    def press(self, *keys: str) -> None:
        """Type, one key after the other: Esc and a letter in one go would be Alt and the letter."""
        for key in keys:
            self.tmux("send-keys", key)
            time.sleep(0.15)

    def until(self, *texts: str, timeout: float = PATIENCE_S) -> str:
        """Until the screen shows all of these; the screen."""
        return self.when(lambda shown: all(text in shown for text in texts), repr(texts), timeout)

    def when(self, true: Callable[[str], bool], what: str, timeout: float = PATIENCE_S) -> str:
        """Until the screen is as wanted."""
        end = time.monotonic() + timeout
        while not true(shown := self.screen):
            assert time.monotonic() < end, f"never came: {what}\n{shown}"
            time.sleep(0.1)
        return shown

    def close(self) -> None:
        """End the terminal and what runs in it."""
        self.tmux("kill-server")
