"""Text to token ids: tokenizer and chat template of a model folder."""

from __future__ import annotations

import json
from pathlib import Path

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from eagle3.config import ConfigError
from eagle3.protocol import BadRequest


class TokenCoder:
    """Encodes prompts and chats.

    Raises:
        ConfigError: the folder has no readable tokenizer.
    """

    def __init__(self, folder: Path) -> None:
        file = folder / "tokenizer.json"
        try:
            self.tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:
            raise ConfigError(f"{file}: not a readable tokenizer: {error}") from None
        self.vocab = self.tokenizer.get_vocab_size()
        self.longest = max(len(token.encode()) for token in self.tokenizer.get_vocab())
        template = self._template(folder)
        self._chat = (
            ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(
                template
            )
            if template
            else None
        )

    @staticmethod
    def _template(folder: Path) -> str | None:
        separate = folder / "chat_template.jinja"
        if separate.exists():
            return separate.read_text("utf-8")
        try:
            config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        value = config.get("chat_template")
        return value if isinstance(value, str) else None

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, special tokens recognised."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def chat(self, messages: list[dict[str, str]]) -> str:
        """A chat as the model was trained to read it, ending where it is to answer.

        Raises:
            BadRequest: the model has no template, or the template refuses the messages.
        """
        if self._chat is None:
            raise BadRequest("this model has no chat template; use /v1/completions")
        try:
            return self._chat.render(messages=messages, add_generation_prompt=True)
        except TemplateError as error:
            raise BadRequest(f"the chat template refuses these messages: {error}") from None

    def text(self, token: int) -> str:
        """The text of one token."""
        text: str = self.tokenizer.decode([token], skip_special_tokens=False)
        return text
