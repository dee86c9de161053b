"""An exported screen, read back from its SVG: what stands in each cell, and how it looks.

The SVG itself is no good to compare: its ids are hashes of the whole, its numbers are pixels, and
one changed word moves all that follow. Cells are what an operator sees, and a page of them can be
read in a review.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from xml.etree import ElementTree

from rich.cells import cell_len

_NS = "{http://www.w3.org/2000/svg}"
_RULE = re.compile(r"\.[\w-]+-(r\d+)\s*\{([^}]*)\}")
_LETTERS = ".abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"


@dataclass(frozen=True)
class Picture:
    """``text`` and ``styles`` are rows of cells; ``legend`` says what each letter looks like."""

    text: tuple[str, ...]
    styles: tuple[str, ...]
    legend: tuple[str, ...]

    def page(self, title: str) -> str:
        """As a file: words first, then their looks."""
        return "\n".join(
            [title, "", *self.text, "", *self.styles, "", *self.legend, ""]
        )  # fmt: skip


def read(svg: str, width: int, height: int) -> Picture:
    """The cells of an export of that many columns and rows."""
    root = ElementTree.fromstring(svg)
    style = "".join(node.text or "" for node in root.iter(f"{_NS}style"))
    rules = {name: " ".join(body.split()) for name, body in _RULE.findall(style)}
    lines = [node for node in root.iter(f"{_NS}text") if "clip-path" in node.attrib]
    one_wide = min(
        float(node.attrib["textLength"]) / cell_len(node.text or "")
        for node in lines
        if cell_len(node.text or "") and "textLength" in node.attrib
    )
    tops = sorted({float(node.attrib["y"]) for node in lines})
    row_high = min(after - before for before, after in itertools.pairwise(tops))
    text = [[" "] * width for _ in range(height)]
    looks = [[["", ""] for _ in range(width)] for _ in range(height)]
    for node in lines:
        y = int(re.findall(r"line-(\d+)", node.attrib["clip-path"])[0])
        x = round(float(node.attrib["x"]) / one_wide)
        rule = rules.get(re.findall(r"(r\d+)$", node.attrib["class"])[0], "")
        for character in (node.text or "").replace("\xa0", " "):
            size = cell_len(character)
            if y < height and x < width and size:
                text[y][x] = character
                looks[y][x][0] = rule
                if size == 2 and x + 1 < width:
                    text[y][x + 1] = ""
            x += size
    for node in root.iter(f"{_NS}rect"):
        if "shape-rendering" not in node.attrib:
            continue
        y = round((float(node.attrib["y"]) - 1.5) / row_high)
        x = round(float(node.attrib["x"]) / one_wide)
        for at in range(x, min(width, x + round(float(node.attrib["width"]) / one_wide))):
            if 0 <= y < height:
                looks[y][at][1] = node.attrib["fill"]
    return _lettered(text, looks)


def _lettered(text: list[list[str]], looks: list[list[list[str]]]) -> Picture:
    known: dict[tuple[str, str], str] = {}
    styles = []
    for row, looked in zip(text, looks, strict=True):
        out = ""
        for cell, (rule, ground) in zip(row, looked, strict=True):
            key = (rule if cell.strip() else "", ground)
            if key not in known:
                known[key] = _LETTERS[len(known)]
            out += known[key]
        styles.append(out.rstrip())
    legend = [f"{letter}  {rule or '-'}  on {ground or '-'}"
              for (rule, ground), letter in known.items()]  # fmt: skip
    return Picture(tuple("".join(row).rstrip() for row in text), tuple(styles), tuple(legend))
