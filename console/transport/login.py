"""What an SSH server may ask during login, answered by the operator and kept in memory only."""

from __future__ import annotations

from collections.abc import Sequence

import asyncssh

from console.model import Host
from console.text import clean
from console.transport.prompts import Prompts

_answers: dict[tuple[str, str], str] = {}
"""Passphrases by key file, passwords by host: asked once for all connections of this process."""
ATTEMPTS = 2


class Login(asyncssh.SSHClient):
    """Collects what is needed for one connection; remembers the host key that was refused."""

    def __init__(self, host: Host, prompts: Prompts) -> None:
        self._host = host
        self._prompts = prompts
        self._passwords = 0
        self._rounds = 0
        self.key: asyncssh.SSHKey | None = None
        self.asked: list[str] = []

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Called for a key that no known_hosts file holds: never accepted on the spot."""
        del host, addr, port
        self.key = key
        return False

    async def passphrase(self, path: str) -> str | None:
        """The passphrase of a key file."""
        return await self._ask(("passphrase", str(path)), "passphrase", f"passphrase for {path}")

    async def password_auth_requested(self) -> str | None:
        """A password; an answer that was refused is forgotten and asked for again, once."""
        self._passwords += 1
        if self._passwords > ATTEMPTS:
            return None
        if self._passwords > 1:
            _answers.pop(("password", self._host.name), None)
        prompt = f"password for {self._host.user}@{self._host.address}"
        return await self._ask(("password", self._host.name), "password", prompt)

    def kbdint_auth_requested(self) -> str | None:
        """One-time codes and the like: at most two rounds of questions."""
        self._rounds += 1
        return "" if self._rounds <= ATTEMPTS else None

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Sequence[tuple[str, bool]]
    ) -> list[str] | None:
        """Answers for the server's questions; codes are never kept, they hold once."""
        del name, instructions, lang
        found = []
        for text, _ in prompts:
            self.asked.append("code")
            answer = await self._prompts.secret(self._host.name, "code", clean(text, limit=200))
            if answer is None:
                return None
            found.append(answer)
        return found

    async def _ask(self, key: tuple[str, str], what: str, prompt: str) -> str | None:
        if key not in _answers:
            self.asked.append(what)
            answer = await self._prompts.secret(self._host.name, what, prompt)
            if answer is None:
                return None
            _answers[key] = answer
        return _answers[key]
