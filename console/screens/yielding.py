"""A screen lets others have the loop between two of its messages.

Textual's pumps take message after message for as long as there are any: a screen that opens gets
some twenty at once, and a key waits for all of them.
"""

from __future__ import annotations

import asyncio
import time

from textual.message import Message
from textual.message_pump import MessagePump

STEP_S = 0.004
"""Work after which the loop is given away."""


class Yielding(MessagePump):
    """For screens, before Textual's own class."""

    async def _dispatch_message(self, message: Message) -> None:
        begun = time.monotonic()
        await super()._dispatch_message(message)
        if time.monotonic() - begun > STEP_S:
            await asyncio.sleep(0)


__all__ = ["Yielding"]
