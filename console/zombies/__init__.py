"""Zombies told apart with evidence: pure rules over one host's snapshots.

``classify`` gives the verdicts; ``docs/zombies.md`` explains each kind and each threshold.
"""

from console.zombies.classify import classify
from console.zombies.evidence import lacks_watching
from console.zombies.policy import Attempt, Policy, Probe
from console.zombies.stillness import Stillness

__all__ = ["Attempt", "Policy", "Probe", "Stillness", "classify", "lacks_watching"]
