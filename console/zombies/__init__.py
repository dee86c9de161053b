"""Zombies told apart with evidence: pure rules over one host's snapshots."""

from console.zombies.policy import Attempt, Policy, Probe

__all__ = ["Attempt", "Policy", "Probe"]
