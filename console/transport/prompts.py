"""What a connection may have to ask its operator."""

from __future__ import annotations

from typing import Protocol


class Prompts(Protocol):
    """Asks; answers are kept in memory only and asked for once."""

    async def secret(self, host: str, what: str, prompt: str) -> str | None:
        """A passphrase, one-time code or sudo password; ``None`` when nobody answers."""
        ...

    async def trust(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Whether an unknown host key is the right one."""
        ...


class Headless:
    """Nobody is there to ask: every question is answered with no."""

    async def secret(self, host: str, what: str, prompt: str) -> str | None:
        """Nobody answers."""
        del host, what, prompt
        return None

    async def trust(self, host: str, key_type: str, fingerprint: str) -> bool:
        """An unknown key is not trusted."""
        del host, key_type, fingerprint
        return False
