"""Verdicts on whole servers: headless, never-ready, hung. A busy server is none of them."""

from __future__ import annotations

from collections.abc import Iterable

from console.model import Health, Phase, Process, Zombie, ZombieKind
from console.zombies.evidence import Case, ago, of_process, watched_for
from console.zombies.policy import Policy, Probe
from console.zombies.roles import Part, expected_ranks, rank_name
from console.zombies.vetoes import supervised
from console.zombies.world import Instance, World

_BEFORE_RANKS = (Phase.SPAWN, Phase.ARGS)
_RANKS_LATE_S = 600.0
"""A launcher without a rank after this time has none; imports and argument checks take minutes."""
_RANKS_SPAWN_S = 120.0
"""Ranks are started within seconds of each other; a part of them after this time is a part."""


def verdict(instance: Instance, world: World, gap_s: float, before: World | None) -> Zombie | None:
    """The verdict on one server, or ``None``. ``gap_s``: seconds between the two samples."""
    if world.veto(instance.launcher) is not None:
        return None  # shown as foreign where it holds something
    if instance.state is not None and instance.state.phase in (Phase.DRAINING, Phase.STOPPED):
        return None
    if zombie := _headless(instance, world, before):
        return zombie
    if instance.health is Health.OK:
        return None
    if instance.was_ready or (instance.state is None and _listens(instance)):
        return _hung(instance, world)
    return _never_ready(instance, world, progress(world, instance.members, cpu=True), gap_s)


def _workers(instance: Instance) -> tuple[Process, ...]:
    """All but its front, which answers whoever looks at it and writes that down."""
    front = {instance.launcher.id} | {
        m.id for m in instance.members if instance.port in m.listening
    }
    return tuple(m for m in instance.members if m.id not in front) or instance.members


def _health(instance: Instance, world: World) -> Health:
    """Its health; where nobody has asked, a port that nothing listens on would refuse."""
    if instance.health not in (Health.UNKNOWN, Health.NONE):
        return instance.health
    known = world.snapshot.ports_known
    if known and instance.port is not None and instance.port not in world.snapshot.listening:
        return Health.REFUSED
    return Health.UNKNOWN


def _listens(instance: Instance) -> bool:
    return any(instance.port in member.listening for member in instance.members)


def _finish(
    kind: ZombieKind, instance: Instance, world: World, case: Case, why_not: str | None
) -> Zombie:
    boss = supervised(instance.launcher, world.by_pid)
    if boss is not None:
        why_not = f"{boss} would start it anew: stop it there"
    if any("t" in (m.state, *m.task_states.values()) for m in instance.members):
        why_not = "a debugger is attached to it"
    return of_process(
        kind,
        instance.launcher,
        case,
        world.snapshot,
        why_not=why_not,
        together=instance.members,
    )


def _headless(instance: Instance, world: World, before: World | None) -> Zombie | None:
    expected = expected_ranks(instance.engine, instance.launcher.argv)
    if expected is None:
        return None
    unnamed = [m for m in instance.members if _may_become_rank(m, world)]
    ranks = instance.ranks
    if len(ranks) + len(unnamed) >= expected or instance.health is Health.OK:
        return None
    case = Case()
    names = ", ".join(sorted(rank_name(rank) for rank in ranks)[:8])
    left = f" (left: {names})" if names else ""
    case.add(
        0.4, f"launcher {instance.launcher.id.pid} lives, {len(ranks)} of {expected} ranks do{left}"
    )
    lost = _ranks_were_there(instance, world, before, expected)
    if lost is None:
        return None
    case.add(*lost)
    if instance.port and world.snapshot.ports_known and not _listens(instance):
        case.add(0.1, f"port {instance.port} is not listened on")
    if instance.health in (Health.REFUSED, Health.TIMEOUT, Health.UNAVAILABLE):
        case.add(0.1, f"health: {instance.health.value}")
    if instance.log_silent_s is not None:
        case.add(0.0, f"log silent for {ago(instance.log_silent_s)}")
    return _finish(ZombieKind.HEADLESS, instance, world, case, None)


def _may_become_rank(process: Process, world: World) -> bool:
    """A child that multiprocessing has just started and that has not taken its title yet."""
    role = world.role(process)
    helper = (
        role is not None and role.part is Part.HELPER and "resource_tracker" not in process.title
    )
    return helper and "compile_worker" not in process.title and process.age_s < _RANKS_SPAWN_S


def _ranks_were_there(
    instance: Instance, world: World, before: World | None, expected: int
) -> tuple[float, str] | None:
    """What shows that ranks existed and are gone, rather than not being there yet."""
    if instance.dead_ranks:
        pids = ", ".join(str(rank.id.pid) for rank in instance.dead_ranks[:4])
        return 0.5, f"dead ranks wait to be collected: {pids}"
    earlier = before.belongs.get(instance.launcher.id) if before else None
    if earlier is not None:
        gone = [r for r in earlier.ranks if world.alive(r.id) is False]
        if gone:
            return (
                0.5,
                f"rank {rank_name(gone[0])} (pid {gone[0].id.pid}) ended between the samples",
            )
    if instance.engine == "vllm":
        return None  # its engine may live in the launcher
    age = instance.launcher.age_s
    state = instance.state
    if state is not None and state.phase not in _BEFORE_RANKS:
        return 0.5, f"its log shows ranks: it has reached {state.phase.value}"
    if instance.ranks and age > _RANKS_SPAWN_S:
        return (
            0.4,
            f"{ago(age)} after its start, {expected - len(instance.ranks)} ranks are missing",
        )
    if age > _RANKS_LATE_S:
        return 0.4, f"no rank {ago(age)} after its start"
    return None


def progress(world: World, members: Iterable[Process], *, cpu: bool) -> str | None:
    """What moved between the samples, or ``None`` for nothing (or no sample to compare with).

    ``cpu``: whether computing counts. Ranks that wait for each other in NCCL spin at 100 %.
    """
    if not world.earlier:
        return None
    for member in members:
        before = world.earlier.get(member.id)
        if before is None:
            return f"process {member.id.pid} is new"
        if (member.read_bytes, member.write_bytes) != (before.read_bytes, before.write_bytes):
            return f"process {member.id.pid} read or wrote"
        # A driver that has not answered yet shows no memory: what appears after it has not changed.
        if world.devices_read and member.gpu_memory_mib != before.gpu_memory_mib:
            return f"process {member.id.pid} changed its device memory"
        span = member.age_s - before.age_s
        used = member.cpu_ticks - before.cpu_ticks
        # At 100 ticks a second one tick in a second is 1 % of a core: idle pools wake up for less.
        if span <= 0 or used / span <= world.policy.idle_cpu_pct:
            continue
        if "compile_worker" in member.title and world.role(member) is not None:
            return f"compile worker {member.id.pid} is at work"
        if cpu:
            return f"process {member.id.pid} uses {used / span:.0f} % of a core"
    return None


def _hung(instance: Instance, world: World) -> Zombie | None:
    probe, policy = instance.probe, world.policy
    if probe is None or not probe.failed:
        return None
    # What the helpers of a stopped rank do is no sign of life: nothing of theirs makes it answer.
    stopped = any(rank.state == "T" for rank in instance.ranks)
    if not stopped and progress(world, _workers(instance), cpu=False) is not None:
        return None
    silent, still = instance.log_silent_s, probe.tokens_still_s
    if any(value is not None and value < probe.no_answer_s for value in (silent, still)):
        return None  # it did something while it was asked: it is at work
    case = Case()
    waited = max(attempt.waited_s for attempt in probe.failed)
    case.add(0.3, f"/health_generate no answer in {waited:.0f} s (from {probe.vantage})")
    enough = (
        len(probe.failed) >= policy.hung_probes and probe.no_answer_s >= policy.hung_no_answer_s
    )
    many = f"{len(probe.failed)} probes in a row, no 200 for {probe.no_answer_s:.0f} s"
    case.add(0.3 if enough else 0.1, many)
    if silent is not None:
        case.add(0.2, f"log silent for {ago(silent)}")
    if still is not None:
        case.add(0.2, f"the count of tokens has not moved for {ago(still)}")
    elif not probe.metrics_answered:
        case.add(0.2, "the count of tokens cannot be asked either")
    for member in instance.members:
        if member.state == "T":
            case.add(0.0, f"process {member.id.pid} is stopped (state T); SIGCONT would resume it")
            break
    why_not = None
    if not enough:
        why_not = f"needs {policy.hung_probes} probes over {policy.hung_no_answer_s:.0f} s"
    else:
        why_not = _not_silent_enough(probe, silent, policy)
    return _finish(ZombieKind.HUNG, instance, world, case, why_not)


def _not_silent_enough(probe: Probe, silent: float | None, policy: Policy) -> str | None:
    """What of a minute's silence is not known or not over yet."""
    limit = policy.hung_silent_s
    if silent is None:
        return "when its log last grew is not known"
    if silent < limit:
        return watched_for(silent, limit, "of its log's silence")
    still = probe.tokens_still_s
    if still is None and probe.metrics_answered:
        return watched_for(probe.tokens_watched_s or 0.0, limit, "whether its tokens move")
    if still is not None and still < limit:
        return watched_for(still, limit, "whether its tokens move")
    return None


def _never_ready(
    instance: Instance, world: World, moving: str | None, gap_s: float
) -> Zombie | None:
    policy = world.policy
    limit, learned = ready_limit(instance, world)
    age = instance.launcher.age_s
    health = _health(instance, world)
    if age <= limit or moving is not None or health is Health.UNKNOWN:
        return None
    silent = instance.log_silent_s
    if silent is not None and silent < policy.never_ready_still_s:
        return None
    watched = gap_s if world.earlier else 0.0
    if instance.probe is not None and instance.probe.still_s is not None:
        watched = max(watched, instance.probe.still_s)
    case = Case()
    usual = f", usual {ago(learned)}" if learned else ""
    phase = f"in phase {instance.state.phase.value}" if instance.state else "not ready"
    case.add(0.4, f"{phase} {ago(age)} after its start (limit {ago(limit)}{usual})")
    case.add(0.2, f"health: {health.value}, port {instance.port}")
    if silent is not None:
        case.add(0.2, f"log silent for {ago(silent)}")
    if watched > 0:
        full = watched >= policy.never_ready_still_s
        case.add(0.2 if full else 0.1, f"no CPU and no I/O for {ago(watched)}")
    why_not = None
    if silent is None:
        why_not = "when its log last grew is not known"
    elif watched < policy.never_ready_still_s:
        why_not = watched_for(watched, policy.never_ready_still_s, "without progress")
    return _finish(ZombieKind.NEVER_READY, instance, world, case, why_not)


def ready_limit(instance: Instance, world: World) -> tuple[float, float | None]:
    """Seconds a start may take before it is looked at, and the longest start learned."""
    policy: Policy = world.policy
    server = instance.server
    base = server.never_ready_after if server else None
    if base is None:
        bundled = instance.engine == "bundled"
        base = policy.never_ready_bundled_s if bundled else policy.never_ready_after_s
    learned = [
        sum(seconds for _, seconds in run.phases)
        for run in world.known.runs
        if run.server == instance.name and run.phases and run.served
    ]
    if instance.name in policy.learned_ready_s:
        learned.append(policy.learned_ready_s[instance.name])
    longest = max(learned, default=None)
    return max(base, policy.never_ready_learned * (longest or 0.0)), longest
