"""What a login asks, as dialogs: secrets stay in memory, an unknown key is named first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, TypeVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from console.screens.dialog import Dialog
from widgets.paint import Lines, line, wrap
from widgets.words import safe

if TYPE_CHECKING:
    from console.app import SpecopsApp
    from widgets.prompt import Prompt

T = TypeVar("T")


class SecretDialog(Dialog[str | None]):
    """Asks for a passphrase, a one-time code or a password; shows none of it."""

    unasked: bool = True

    def __init__(self, host: str, what: str, prompt: str) -> None:
        super().__init__()
        self._host, self._what, self._prompt = host, what, prompt

    def heading(self) -> str:
        """Who asks."""
        return f"{safe(self._host)} asks"

    def body(self) -> list[Widget]:
        """The host's own words, marked as such, and the line."""
        from widgets.prompt import Prompt  # noqa: PLC0415 - the input is only needed here

        return [Lines(id="content"), Prompt("secret", password=True, id="secret")]

    def on_mount(self) -> None:
        """Draw, and take the keys."""
        self.foot(("Enter  send", "key"), ("Esc  do not log in", "key"))
        self.draw()
        self.query_one("#secret").focus()

    def draw(self) -> None:
        """Say what is wanted and what becomes of it."""
        width, _ = self.room()
        lines = [line((safe(self._what), "strong"))]
        lines += [
            line(("│ ", "dim"), part) for part in wrap(safe(self._prompt), width - 2, limit=4)
        ]
        lines.append(line(("kept in memory until you leave, never written anywhere", "dim")))
        self.fill(lines, taken=2)

    def on_prompt_given(self, event: Prompt.Given) -> None:
        """Sent, or given up."""
        event.stop()
        self.dismiss(event.text)


class TrustDialog(Dialog[bool | None]):
    """An unknown host key: ``y`` trusts and remembers it; Enter and Esc do not."""

    unasked: bool = True

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,enter,q", "cancel", show=False),
        Binding("y", "trust", show=False),
    ]

    def __init__(self, host: str, key_type: str, fingerprint: str) -> None:
        super().__init__()
        self._host, self._type, self._print = host, key_type, fingerprint

    def heading(self) -> str:
        """The question."""
        return f"{safe(self._host)}: first contact"

    def on_mount(self) -> None:
        """Draw."""
        self.foot(("y  trust and remember it", "warn"), ("[ Do not connect ]", "focus"))
        self.draw()

    def draw(self) -> None:
        """The key, and how to check it."""
        width, _ = self.room()
        kind = next((word for word in ("ed25519", "ecdsa", "rsa") if word in self._type), "*")
        how = (
            "Compare it with what the host itself says, on its own console: "
            f"ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub"
        )
        text = "This host's key is not known yet. Whoever holds it is who you will talk to."
        key = f"{safe(self._type)}  {safe(self._print)}"
        lines = [
            *(line(part) for part in wrap(text, width)),
            (),
            *(line((part, "strong")) for part in wrap(key, width)),
            (),
            *(line((part, "dim")) for part in wrap(how, width)),
        ]
        self.fill(lines)

    def action_trust(self) -> None:
        """``y``."""
        self.dismiss(True)


class ScreenPrompts:
    """``console.session.Prompts`` over dialogs: one at a time, whatever hosts ask meanwhile."""

    def __init__(self, app: SpecopsApp) -> None:
        self._app = app
        self._lock = asyncio.Lock()

    async def secret(self, host: str, what: str, prompt: str) -> str | None:
        """Ask for a secret; ``None`` when the operator would rather not log in."""
        async with self._lock:
            answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            self._app.push_screen(SecretDialog(host, what, prompt), _into(answer))
            return await answer

    async def trust(self, host: str, key_type: str, fingerprint: str) -> bool:
        """Ask whether an unknown host key is the right one."""
        async with self._lock:
            answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
            self._app.push_screen(TrustDialog(host, key_type, fingerprint), _into(answer))
            return bool(await answer)


def _into(answer: asyncio.Future[T | None]) -> Callable[[T | None], None]:
    def given(value: T | None) -> None:
        if not answer.done():
            answer.set_result(value)

    return given
