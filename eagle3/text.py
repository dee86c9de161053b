"""Tokens to text while they come, with stop strings."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class TextStream:
    """The text of one answer.

    Text that could still turn out to be the beginning of a stop string is held back, so that a
    client never sees any part of one.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._stream = DecodeStream(skip_special_tokens=True)
        self._held = ""
        self.matched: str | None = None

    def feed(self, token: int) -> str:
        """Text that is now certain; sets ``matched`` when a stop string is complete."""
        self._held += self._stream.step(self._tokenizer, token) or ""
        if not self._stop:
            return self._release(len(self._held))
        found = [(self._held.find(stop), stop) for stop in self._stop if stop in self._held]
        if found:
            at, self.matched = min(found)
            return self._release(at)
        return self._release(len(self._held) - self._overlap())

    def rest(self) -> str:
        """What was held back, for an answer that ended otherwise."""
        return self._release(len(self._held)) if self.matched is None else ""

    def _release(self, count: int) -> str:
        out, self._held = self._held[:count], self._held[count:]
        return out

    def _overlap(self) -> int:
        """Length of the longest end of the held text that begins a stop string."""
        return max(
            (
                size
                for stop in self._stop
                for size in range(1, min(len(stop), len(self._held)) + 1)
                if self._held.endswith(stop[:size])
            ),
            default=0,
        )
