"""A pattern looked for in a whole log, in steps.

Nothing else runs in the program while one search goes on: over 4 MB that would be up to 50 ms for
one pattern, in which the console hears no key.
"""

from __future__ import annotations

import re

WINDOW = 64 * 1024
"""Characters of a step, up to the end of a line."""
LONGEST = 8192
"""A match that begins in one step may end so far beyond it; a test holds the rules to that."""


def search(pattern: re.Pattern[str] | None, text: str) -> re.Match[str] | None:
    """What ``pattern.search(text)`` finds."""
    at = 0
    while pattern is not None and at < len(text):
        end = (text.find("\n", at + WINDOW) + 1) or len(text)
        match = pattern.search(text, at, end + LONGEST)
        if match is not None and match.start() < end:
            return match if match.end() <= end else pattern.search(text, match.start())
        at = end
    return None
