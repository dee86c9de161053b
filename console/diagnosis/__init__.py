"""Root cause, category and fix out of a server's log. Pure: bytes in, data out.

``diagnose`` judges a log, ``classify_line`` marks single lines for the log view, ``load_rules``
reads the rules with a user's own before them.
"""

from console.diagnosis.annotate import JUMPS, TROUBLE, LineKind, classify_line, rank_number
from console.diagnosis.diagnose import diagnose, diagnosis_to_json, judge_lines
from console.diagnosis.rules import CATEGORIES, Rule, Rules, load_rules, parse_rules

__all__ = [
    "CATEGORIES",
    "JUMPS",
    "TROUBLE",
    "LineKind",
    "Rule",
    "Rules",
    "classify_line",
    "diagnose",
    "diagnosis_to_json",
    "judge_lines",
    "load_rules",
    "parse_rules",
    "rank_number",
]
