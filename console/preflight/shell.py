"""Words of a POSIX shell text: quotes, continuations, comments, variables, operators, redirections.

Enough of the language to read a launch script, and no more: nothing is run, a command substitution
or a variable without a value stays as it is written and is reported as unresolved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from console.errors import UsageError

_OPERATORS = ("&&", "||", ";;", "&>>", "&>", ";", "|", "&", "(", ")")
_REDIRECT = re.compile(r"(\d*)(>>|>\||>&|>|<<<|<<|<)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LEADS = {"then", "do", "else", "{"}
_ARRAY = re.compile(r"(?:(?:declare|local|readonly)[ \t]+-[aA]\w*[ \t]+)?([A-Za-z_]\w*)(\+?)=\(")
_ELEMENTS = re.compile(r'(?P<q>"?)\$\{([A-Za-z_]\w*)\[[@*]\](?::?[-+][^}]*)?\}(?P=q)(?=[\s;&|)]|$)')
_BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?:(:?[-=?+])([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection; ``target`` is a path, or a descriptor where ``dup``."""

    fd: str
    target: str
    append: bool = False
    dup: bool = False
    input: bool = False


@dataclass(slots=True)
class Simple:
    """One simple command: its words, redirections, and the operator that ends it."""

    words: list[str] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    end: str = ""


class Lexer:
    """Reads simple commands from a text, expanding variables as they are known at that point."""

    def __init__(self, text: str, env: Mapping[str, str], place: str = "command") -> None:
        self.text = text.replace("\r\n", "\n")
        self.pos = 0
        self.env = env
        self.place = place
        self.unresolved: list[str] = []
        self.arrays: dict[str, list[str]] = {}

    def next(self) -> Simple | None:
        """The next simple command, or None at the end of the text."""
        command = Simple()
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if char == "\\" and self.text.startswith("\\\n", self.pos):
                self.pos += 2
            elif char in " \t":
                self.pos += 1
            elif char == "\n" or self._operator():
                command.end = self._take_operator()
                if command.words or command.redirects:
                    return command
            elif char == "#":
                end = self.text.find("\n", self.pos)
                self.pos = len(self.text) if end < 0 else end
            elif _leads(command.words[:3]) and (array := _ARRAY.match(self.text, self.pos)):
                self._array(array)
            elif not self._redirect(command):
                command.words += self._elements() or self._word()
        return command if command.words or command.redirects else None

    def _array(self, opening: re.Match[str]) -> None:
        """Reads ``NAME=(…)`` or ``NAME+=(…)``."""
        words = self.arrays.setdefault(opening[1], []) if opening[2] else []
        self.arrays[opening[1]] = words
        start, self.pos = self.pos, opening.end()
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if char == ")":
                self.pos += 1
                return
            if char in " \t\n" or self.text.startswith("\\\n", self.pos):
                self.pos += 2 if char == "\\" else 1
            elif char == "#":
                end = self.text.find("\n", self.pos)
                self.pos = len(self.text) if end < 0 else end
            else:
                words += self._elements() or self._word()
        self.pos = start
        raise self._unclosed("(")

    def _elements(self) -> list[str]:
        """The words of ``"${NAME[@]}"`` where that stands by itself and the array is known."""
        match = _ELEMENTS.match(self.text, self.pos)
        if match is None or match[2] not in self.arrays:
            return []
        self.pos = match.end()
        return list(self.arrays[match[2]])

    def _operator(self) -> str:
        for op in _OPERATORS:
            if self.text.startswith(op, self.pos) and op not in ("&>", "&>>"):
                return "" if self.text.startswith(("&>",), self.pos) else op
        return ""

    def _take_operator(self) -> str:
        op = "\n" if self.text[self.pos] == "\n" else self._operator()
        self.pos += len(op)
        return op

    def _redirect(self, command: Simple) -> bool:
        """Reads a redirection if one starts here."""
        if self.text.startswith("&>", self.pos):
            append = self.text.startswith("&>>", self.pos)
            self.pos += 3 if append else 2
            command.redirects.append(Redirect("&", self._target(), append))
            return True
        match = _REDIRECT.match(self.text, self.pos)
        if not match:
            return False
        self.pos = match.end()
        fd, op = match[1], match[2]
        target = self._target()
        if op == ">&" and target.isdigit():
            command.redirects.append(Redirect(fd or "1", target, dup=True))
        elif op == ">&":
            command.redirects.append(Redirect("&", target))
        else:
            reads = op.startswith("<")
            command.redirects.append(
                Redirect(fd or ("0" if reads else "1"), target, append=op == ">>", input=reads)
            )
        return True

    def _target(self) -> str:
        while self.pos < len(self.text) and self.text[self.pos] in " \t":
            self.pos += 1
        return " ".join(self._word()) if self.pos < len(self.text) else ""

    def _word(self) -> list[str]:
        """One word, or several where an unquoted variable holds several; none where it is empty."""
        parts: list[tuple[str, bool]] = []  # text, and whether unquoted expansion may split it
        start = self.pos
        quoted = False
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if char in " \t\n" or self._operator() or (char in "<>" and self.pos > start):
                break
            if self.text.startswith("&>", self.pos):
                break
            if char == "'":
                parts.append((self._single(), False))
                quoted = True
            elif char == '"':
                parts.append((self._double(), False))
                quoted = True
            elif char == "\\":
                following = self.text[self.pos + 1 : self.pos + 2]
                parts.append(("" if following == "\n" else following, False))
                self.pos += 2
            elif char in "$`":
                parts.append((self._expand(), True))
            else:
                parts.append((char, False))
                self.pos += 1
        if self.pos == start:  # a stray character that no rule takes
            self.pos += 1
        return _split(parts, quoted)

    def _single(self) -> str:
        end = self.text.find("'", self.pos + 1)
        if end < 0:
            raise self._unclosed("'")
        value = self.text[self.pos + 1 : end]
        self.pos = end + 1
        return value

    def _double(self) -> str:
        start = self.pos
        self.pos += 1
        out: list[str] = []
        while self.pos < len(self.text):
            char = self.text[self.pos]
            if char == '"':
                self.pos += 1
                return "".join(out)
            following = self.text[self.pos + 1 : self.pos + 2]
            if char == "\\" and following and following in '"\\$`\n':
                out.append("" if following == "\n" else following)
                self.pos += 2
            elif char in "$`":
                out.append(self._expand())
            else:
                out.append(char)
                self.pos += 1
        self.pos = start
        raise self._unclosed('"')

    def _expand(self) -> str:
        """The value of ``$NAME``, ``${NAME:-word}``; anything else stays as written."""
        start = self.pos
        if self.text[start] == "`" or self.text.startswith("$(", start):
            return self._substitution()
        braced = _BRACED.match(self.text, start + 1)
        plain = _NAME.match(self.text, start + 1)
        if braced:
            self.pos = braced.end()
            return self._value(braced[1], braced[2] or "", braced[3] or "", start)
        if plain:
            self.pos = plain.end()
            return self._value(plain[0], "", "", start)
        special = self.text[start + 1 : start + 2]
        self.pos = start + (2 if special and special in "@*#?$!0123456789-" else 1)
        return "" if special and special in "@*" else self.text[start : self.pos]

    def _substitution(self) -> str:
        start = self.pos
        if self.text[start] == "`":
            end = self.text.find("`", start + 1)
        else:
            depth = 0
            end = -1
            for at in range(start + 1, len(self.text)):
                depth += {"(": 1, ")": -1}.get(self.text[at], 0)
                if depth == 0:
                    end = at
                    break
        if end < 0:
            raise self._unclosed("$(")
        self.pos = end + 1
        raw = self.text[start : self.pos]
        shown = f"$({raw[1:-1]})" if raw[0] == "`" else raw
        self.unresolved.append(shown)
        return shown

    def _value(self, name: str, op: str, word: str, start: int) -> str:
        value = self.env.get(name)
        if op in (":-", ":=") and not value:
            return word
        if op in ("-", "=") and value is None:
            return word
        if op in (":+", "+"):
            return word if value else ""
        if value is None:
            self.unresolved.append("$" + name)
            return self.text[start : self.pos]
        return value

    def _unclosed(self, mark: str) -> UsageError:
        line = self.text.count("\n", 0, self.pos) + 1
        return UsageError(
            f"the {'bracket' if '(' in mark else 'quote'} {mark} that opens here is never closed",
            place=f"{self.place}:{line}",
            hint="close it, or check whether the text was cut when it was pasted",
        )


def _leads(words: list[str]) -> bool:
    """Whether a command has not begun yet: nothing stands there, or what a command follows."""
    return len(words) < 3 and set(words) <= _LEADS


def _fields(text: str) -> list[str]:
    """Words of a value, where a command substitution that was left in it counts as one."""
    out: list[str] = []
    current, depth = "", 0
    for at, char in enumerate(text):
        depth += char == "(" and (depth > 0 or text[at - 1 : at] == "$")
        depth -= char == ")" and depth > 0
        if char.isspace() and not depth:
            out += [current] if current else []
            current = ""
        else:
            current += char
    return [*out, current] if current else out


def _split(parts: list[tuple[str, bool]], quoted: bool) -> list[str]:
    words = [""]
    for text, splits in parts:
        if splits and not text.startswith("$"):
            pieces = _fields(text)
            if text[:1].isspace() and words[-1]:
                words.append("")
            for index, piece in enumerate(pieces):
                if index:
                    words.append("")
                words[-1] += piece
        else:
            words[-1] += text
    return words if quoted else [word for word in words if word]
