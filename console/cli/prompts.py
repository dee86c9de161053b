"""Secrets and host keys asked on the terminal; without one, nobody answers."""

from __future__ import annotations

import asyncio
import getpass
import sys
from typing import TYPE_CHECKING

from console.text import clean

if TYPE_CHECKING:
    from console.session import Prompts


class TerminalPrompts:
    """Asks on the controlling terminal; stdout stays clean. One question at a time."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def secret(self, host: str, what: str, prompt: str) -> str | None:
        """A passphrase, password or code; ``None`` for an empty answer."""
        question = f"{host}: {clean(what)}: {clean(prompt)} "
        async with self._turn:
            return await asyncio.to_thread(getpass.getpass, question) or None

    async def trust(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Whether an unknown host key is the right one; only the whole word yes is."""
        sys.stderr.write(f"{host} shows a {clean(key_type)} key not seen before: {fingerprint}\n")
        sys.stderr.write("Compare it with the host's own. Type yes to trust it: ")
        sys.stderr.flush()
        async with self._turn:
            answer: str = await asyncio.to_thread(sys.stdin.readline)
        return answer.strip() == "yes"


def prompts() -> Prompts:
    """Who answers questions: the terminal where there is one, else nobody."""
    if sys.stdin.isatty() and sys.stderr.isatty():
        return TerminalPrompts()
    from console.session import Headless

    return Headless()
