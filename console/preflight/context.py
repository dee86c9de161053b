"""What every rule sees: the command, its settings, the facts, and which version judges them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.model import Change, Finding, Severity
from console.preflight.command import LaunchCommand
from console.preflight.facts import HostFacts, ModelFacts
from console.preflight.models import Derived, architecture, context_length, overridden
from console.preflight.settings import Settings, json_value, resolve
from console.preflight.tables import BUNDLED, Table, Tables, order, place, select

SPECULATIVE = ("speculative-num-steps", "speculative-eagle-topk", "speculative-num-draft-tokens")
EAGLE_FAMILY = ("EAGLE", "EAGLE3", "STANDALONE")
CONTEXT_OVERRIDE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"

# Beside a version's own_drafts: targets whose path the argument code takes for the draft's, and one
# whose class is rewritten on load before that.
_OWN_DRAFT = frozenset(
    {
        "DeepseekV32ForCausalLM",
        "MistralLarge3ForCausalLM",
        "PixtralForConditionalGeneration",
        "HYV4ForCausalLM",
        "Qwen4ExpForConditionalGeneration",
    }
)


@dataclass(frozen=True, slots=True)
class Context:
    """One launch to be judged. The bundled engine behaves as SGLang 0.5.12 does."""

    command: LaunchCommand
    facts: HostFacts
    tables: Tables
    settings: Settings

    @property
    def table(self) -> Table:
        """What the version knows."""
        return self.tables.table

    def since(self, version: str) -> bool:
        """Whether the engine is of this version or later; the table's where its own is unknown."""
        own = self.tables.version if order(self.tables.version)[0] else self.table.version
        return order(own) >= order(version)

    @property
    def sglang(self) -> bool:
        """Whether the engine reads SGLang's flags (SGLang itself, or the bundled one)."""
        return not self.settings.foreign

    @property
    def bundled(self) -> bool:
        """Whether the bundled engine itself computes, and does not hand over to SGLang."""
        return self.command.engine == "bundled" and self.settings.text("engine") != "sglang"

    @property
    def algorithm(self) -> str | None:
        """The speculative algorithm as the engine names it: NEXTN becomes EAGLE."""
        name = self.settings.text("speculative-algorithm")
        if name is None:
            return None
        name = name.upper() if self.since("0.5.12") else name
        if self.bundled and name == "EAGLE":
            return "EAGLE3"  # the only kind of draft that it has
        return "EAGLE" if name == "NEXTN" else name

    @property
    def target(self) -> Mapping[str, Any] | None:
        """The target's config.json, as the line overrides it; None where that is not known."""
        return self._read(self.facts.target)

    @property
    def draft(self) -> Mapping[str, Any] | None:
        """The draft's config.json; None where the command names no draft."""
        if "speculative-draft-model-path" not in self.settings:
            return None
        return self._read(self.facts.draft)

    def _read(self, model: ModelFacts | None) -> Mapping[str, Any] | None:
        key = "json-model-override-args"
        if model is None or self.settings.unknown(key):
            return None
        return overridden(model.config, next(json_value(self.settings.text(key)), {}))

    @property
    def own_draft(self) -> bool:
        """Whether the target's own checkpoint serves as draft (multi-token prediction)."""
        arch = architecture(self.target)
        tables = [t for t in (self.table, self.tables.above) if t]
        return arch in _OWN_DRAFT or any(arch in table.own_drafts for table in tables)

    @property
    def transformers(self) -> int:
        """Major version of transformers that the engine's version pins."""
        pinned = self.table.transformers
        return int(pinned.split(".")[0]) if pinned else 5 if self.since("0.5.10") else 4

    @property
    def draft_path(self) -> str | None:
        """The draft model's path as given."""
        return self.settings.text("speculative-draft-model-path")

    @property
    def overrides_context(self) -> bool:
        """Whether the environment lets a length exceed what the config allows."""
        value = self.command.env.get(CONTEXT_OVERRIDE)
        if value is None and self.facts.launch_env:
            value = self.facts.launch_env.get(CONTEXT_OVERRIDE)
        return truthy(value)

    def target_context(self) -> Derived | None:
        """The context length that the target will serve; None where it cannot be told."""
        if "context-length" in self.settings:
            given = self.settings.integer("context-length")
            return Derived(given, "--context-length") if given is not None else None
        return context_length(self.target, self.transformers)

    def parallel(self, key: str) -> int:
        """A parallel size, 1 where it is not given or not known."""
        return max(1, self.settings.integer(key, 1) or 1)

    @property
    def attention_dp(self) -> int:
        """Into how many groups attention is split inside the tensor-parallel group."""
        split = self.settings.integer("attn-dp-size")
        if split:
            return split
        return self.parallel("dp-size") if self.settings.on("enable-dp-attention") else 1

    @property
    def local_ranks(self) -> int:
        """Devices that this launch takes on one node."""
        replicas = 1 if self.attention_dp > 1 else self.parallel("dp-size")
        world = self.parallel("tp-size") * self.parallel("pp-size") * replicas
        return max(1, world // self.parallel("nnodes"))

    def source(self, rule: str) -> str:
        """The engine's line behind a rule in this version; "" where this version has none."""
        found = place(rule, self.table.version)
        return f"{self.table.version} {found}" if found else ""

    def error(
        self,
        rule: str,
        message: str,
        fix: str,
        *flags: str,
        at: str = "",
        change: Change | None = None,
    ) -> Finding:
        """A finding that stops the launch: this version exits, raises or hangs.

        ``at`` names the entry of sources.yaml where it is not the rule's own.
        """
        source = self.source(at or rule)
        return Finding(rule, Severity.ERROR, message, fix, flags, change, source)

    def warning(
        self,
        rule: str,
        message: str,
        fix: str,
        *flags: str,
        at: str = "",
        change: Change | None = None,
    ) -> Finding:
        """A finding that changes what was asked for, or lets it go wrong without stopping."""
        source = self.source(at or rule)
        return Finding(rule, Severity.WARNING, message, fix, flags, change, source)

    def info(
        self,
        rule: str,
        message: str,
        fix: str,
        *flags: str,
        at: str = "",
        change: Change | None = None,
    ) -> Finding:
        """A finding that is worth knowing and stops nothing."""
        source = self.source(at or rule)
        return Finding(rule, Severity.INFO, message, fix, flags, change, source)


def truthy(text: str | None) -> bool:
    """Whether SGLang reads an environment value as true."""
    return (text or "").strip().lower() in ("1", "true", "yes", "y", "on", "t")


def make_context(command: LaunchCommand, facts: HostFacts, version: str) -> Context:
    """Everything the rules need, from the three things the caller knows."""
    name = BUNDLED if command.engine == "bundled" else version or command.version or facts.sglang
    tables = select(name)
    return Context(command, facts, tables, resolve(command, tables))
