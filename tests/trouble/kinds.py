"""Each kind of trouble, made by a launcher process that becomes what it pretends to be."""

# No pathlib: os.path and open suit forked processes and Python 3.8.
# ruff: noqa: PTH108, PTH118, PTH123
from __future__ import annotations

import mmap
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable

from tests.trouble import foreign
from tests.trouble.process import (
    Order,
    Report,
    answers,
    fork,
    hold,
    leave_only_threads,
    listen,
    make_ranks,
    send_and_die,
    serve,
    set_title,
    sleep,
    vfork_and_wait,
)


def _launcher_title(port: int, ranks: int) -> None:
    set_title(
        "python3", "-m", "sglang.launch_server", "--model-path", "/models/tiny",
        "--port", str(port), "--tp-size", str(ranks),
    )  # fmt: skip


def _log(order: Order, text: str) -> str:
    path = os.path.join(order.folder, f"server-{os.getpid()}.log")
    with open(path, "w") as file:
        file.write(text)
    _age(path, order.age_s)
    return path


def _age(path: str, seconds: float) -> None:
    if seconds:
        then = time.time() - seconds
        os.utime(path, (then, then), follow_symlinks=False)


def orphan(report: Report, order: Order) -> None:
    """The launcher is killed, its workers live on under init and hold their memory."""
    make_ranks(report, order.ranks, order.mib)
    report.add(launcher=os.getpid())
    send_and_die(report)


def half_dead(report: Report, order: Order) -> None:
    """Zombie leaders: each rank's main thread has exited, another thread lives and holds memory."""
    ranks = make_ranks(report, order.ranks, order.mib, lambda: leave_only_threads(sleep))
    _launcher_title(order.port, order.ranks)
    report.add(launcher=os.getpid())
    report.say(await_state={str(pid): "Z" for pid in ranks})
    report.send()
    sleep()


def headless(report: Report, order: Order) -> None:
    """A launcher that lives although all its ranks are dead (and reaped)."""
    ranks = make_ranks(report, order.ranks, 0)
    for pid in ranks:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    _memory = hold(order.mib)
    _launcher_title(order.port, order.ranks)
    report.add(launcher=os.getpid())
    report.say(paths=[_log(order, "[TP0] Load weight end.\n")])
    report.send()
    sleep()


def never_ready(report: Report, order: Order) -> None:
    """Loaded, then nothing: no port, no log line, no CPU, no I/O."""
    make_ranks(report, order.ranks, order.mib)
    _launcher_title(order.port, order.ranks)
    report.add(launcher=os.getpid())
    report.say(paths=[_log(order, "[TP0] Load weight end.\n")])
    report.send()
    sleep()


def healthy(report: Report, order: Order) -> None:
    """A server that answers, with idle ranks."""
    _serving(report, order, sleep)


def busy(report: Report, order: Order) -> None:
    """Healthy, with ranks that use all the CPU they get."""
    _serving(report, order, _spin)


def _spin() -> None:
    while True:
        pass


def _serving(report: Report, order: Order, body: Callable[[], None]) -> None:
    listener = listen(order.port)
    port = listener.getsockname()[1]
    make_ranks(report, order.ranks, order.mib, body)
    _launcher_title(port, order.ranks)
    report.add(launcher=os.getpid())
    report.say(ports=[port], paths=[_log(order, "The server is fired up and ready to roll!\n")])
    report.send()
    serve(listener)


def hung_stopped(report: Report, order: Order) -> None:
    """Answered once, then SIGSTOP: the kernel still accepts connections for it."""
    listener = listen(order.port)
    port = listener.getsockname()[1]
    ranks = make_ranks(report, order.ranks, order.mib)
    _launcher_title(port, order.ranks)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    report.add(launcher=os.getpid())
    everyone = [*ranks, os.getpid()]
    report.say(ports=[port], await_state={str(pid): "T" for pid in everyone}, mode="stopped")
    report.say(answered=answers(port), paths=[_log(order, "ready to roll!\n")])
    report.send()
    for pid in everyone:
        os.kill(pid, signal.SIGSTOP)
    sleep()


def hung_deadlocked(report: Report, order: Order) -> None:
    """Answered once, then two threads wait for each other; connections open, nothing comes back."""
    listener = listen(order.port)
    port = listener.getsockname()[1]
    make_ranks(report, order.ranks, order.mib)
    _launcher_title(port, order.ranks)
    stop = threading.Event()

    def serve_until_stop() -> None:
        first, second = threading.Lock(), threading.Lock()
        link, _ = listener.accept()
        with link:
            link.recv(4096)
            link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        with first:
            threading.Thread(target=_take, args=(second, first), daemon=True).start()
            stop.set()
            time.sleep(0.05)
            second.acquire()

    threading.Thread(target=serve_until_stop, daemon=True).start()
    answered = answers(port)
    stop.wait()
    report.add(launcher=os.getpid())
    report.say(ports=[port], mode="deadlocked", answered=answered)
    report.say(paths=[_log(order, "ready to roll!\n")])
    report.send()
    sleep()


def _take(mine: threading.Lock, other: threading.Lock) -> None:
    with mine:
        time.sleep(0.1)
        other.acquire()


def defunct(report: Report, order: Order) -> None:
    """Children that ended and a parent that never reaps them."""

    def end_of(rank: int) -> Callable[[], None]:
        return lambda: set_title(f"sglang::scheduler_TP{rank}")

    pids = [fork(end_of(rank)) for rank in range(order.ranks)]
    _launcher_title(order.port, order.ranks)
    report.add(launcher=os.getpid(), **{f"rank{i}": pid for i, pid in enumerate(pids)})
    report.say(await_state={str(pid): "Z" for pid in pids})
    report.send()
    sleep()


def stuck_vfork(report: Report, order: Order) -> None:
    """State D: a rank waits, as in vfork, for a child that does not go on."""
    ranks = make_ranks(report, order.ranks, order.mib, vfork_and_wait)
    _launcher_title(order.port, order.ranks)
    report.add(launcher=os.getpid())
    report.say(await_state={str(pid): "D" for pid in ranks})
    report.send()
    sleep()


def frozen_writer(report: Report, order: Order) -> None:
    """State D: a rank writes to a file system that is frozen."""
    set_title("sglang::scheduler_TP0")
    report.add(writer=os.getpid())
    report.say(paths=[order.folder])
    report.send()
    with open(os.path.join(order.folder, "log"), "w") as file:
        file.write("x")
    sleep()


def leftover(report: Report, order: Order) -> None:
    """Segments, a socket and a lock of a server that is gone; and one segment still mapped."""
    gone = fork(lambda: None)
    os.waitpid(gone, 0)
    tag = secrets.token_hex(4)
    shm = [f"psm_{tag}", f"sgl_shm_kv_{gone}_{tag}", f"nccl-{tag}", f"sem.mp-{tag}",
           f"torch_{gone}_1_{tag}"]  # fmt: skip
    paths = [f"/dev/shm/{name}" for name in shm]
    lock = os.path.join(order.folder, f"torch_extensions-{tag}.lock")
    for path in (*paths, lock):
        with open(path, "wb") as file:
            file.write(bytes(max(order.mib, 0) << 20 if path == paths[0] else 64))
    stale = os.path.join(order.folder, f"sglang-ipc-{tag}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(stale)
    mapped = f"/dev/shm/psm_used{tag}"
    with open(mapped, "wb+") as file:
        file.write(bytes(4096))
        file.flush()
        _memory = mmap.mmap(file.fileno(), 4096)
    for path in (*paths, lock, stale, mapped):
        _age(path, order.age_s)
    report.add(user=os.getpid())
    report.say(paths=[*paths, lock, stale], mapped=[mapped], dead_pid=gone)
    report.send()
    sleep()


def unlinked(report: Report, order: Order) -> None:
    """A segment without a name, held by an orphaned worker."""
    path = f"/dev/shm/psm_{secrets.token_hex(4)}"

    def body() -> None:
        with open(path, "wb+") as file:
            file.truncate(order.mib << 20)
            memory = mmap.mmap(file.fileno(), order.mib << 20)
        memory.write(b"x" * (order.mib << 20))
        os.unlink(path)
        sleep()

    make_ranks(report, 1, 0, body)
    report.add(launcher=os.getpid())
    report.say(unlinked=path, await_gone=path)
    send_and_die(report)


def held_port(report: Report, order: Order) -> None:
    """An orphaned worker that keeps the port and accepts nothing."""
    listener = listen(order.port)
    report.say(ports=[listener.getsockname()[1]])
    make_ranks(report, order.ranks, order.mib)
    report.add(launcher=os.getpid())
    send_and_die(report)


def slow_loader(report: Report, order: Order) -> None:
    """Starting from a slow disk: no port yet, but bytes are read and the log grows."""
    path = _log(order, "[TP0] Load weight begin.\n")

    def body() -> None:
        loaded = 0
        with open("/proc/self/exe", "rb", buffering=0) as disk:
            while True:
                os.posix_fadvise(disk.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                disk.seek(0)
                loaded += len(disk.read(1 << 20))
                with open(path, "a") as log:
                    log.write(f"[TP0] Loading safetensors checkpoint shards: {loaded} bytes\n")
                time.sleep(0.2)

    make_ranks(report, order.ranks, order.mib, body)
    _launcher_title(order.port, order.ranks)
    report.add(launcher=os.getpid())
    report.say(paths=[path])
    report.send()
    sleep()


def double_fork(report: Report, order: Order) -> None:
    """A healthy server whose launcher has init for a parent, as a daemon's."""

    def daemon() -> None:
        os.setsid()
        fork(lambda: _serving(report, order, sleep))

    report.say(dies=True)
    middle = fork(daemon)
    os.waitpid(middle, 0)


def storm(report: Report, order: Order) -> None:
    """A tree that forks while it is killed: on SIGTERM a child leaves two more."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until each is ready for it
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    make_ranks(report, order.ranks, order.mib, lambda: _stubborn(3))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    report.add(launcher=os.getpid())
    _launcher_title(order.port, order.ranks)
    report.send()
    for _ in range(200):  # as a supervisor does; bounded, so that nothing runs away
        os.wait()
        fork(lambda: _stubborn(3))
    sleep()


def _stubborn(generations: int) -> None:
    set_title(f"sglang::scheduler_TP{generations}")

    def heir() -> None:
        os.setsid()
        _stubborn(generations - 1)

    def leave_heirs(signum: int, frame: object) -> None:
        for _ in range(2 if generations else 0):
            fork(heir)
        os._exit(0)

    signal.signal(signal.SIGTERM, leave_heirs)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    while True:
        time.sleep(0.05)
        if generations:
            child = fork(lambda: time.sleep(0.05))
            os.waitpid(child, 0)


ENVIRON: dict[str, dict[str, str]] = {
    "foreign-training": {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0", "MASTER_PORT": "29500"}
}
KINDS: dict[str, Callable[[Report, Order], None]] = {
    "orphan": orphan,
    "half-dead": half_dead,
    "headless": headless,
    "never-ready": never_ready,
    "hung-stopped": hung_stopped,
    "hung-deadlocked": hung_deadlocked,
    "defunct": defunct,
    "stuck-vfork": stuck_vfork,
    "leftover": leftover,
    "unlinked": unlinked,
    "held-port": held_port,
    "foreign-user": foreign.user,
    "foreign-training": foreign.training,
    "foreign-python": foreign.python,
    "foreign-monitor": foreign.monitor,
    "other-namespace": foreign.other_namespace,
    "storm": storm,
    "healthy": healthy,
    "busy": busy,
    "slow-loader": slow_loader,
    "double-fork": double_fork,
}
# ``stuck-frozen`` needs a mount and is made by the maker itself (``frozen``).
NAMES: list[str] = [*KINDS, "stuck-frozen"]
