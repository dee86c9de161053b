"""SSH keys for tests, made by ssh-keygen, and the files that name them."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Key:
    """An ed25519 key pair without a passphrase (unless one is given) in two files."""

    path: Path

    @property
    def public(self) -> str:
        """The public key's line: type, base64, comment."""
        return self.public_path.read_text().strip()

    @property
    def public_path(self) -> Path:
        """Where the public key is."""
        return self.path.with_name(self.path.name + ".pub")

    def known_hosts_line(self, address: str, port: int = 22) -> str:
        """The line by which a client recognises the host that holds this key."""
        name = address if port == 22 else f"[{address}]:{port}"
        kind, blob = self.public.split()[:2]
        return f"{name} {kind} {blob}\n"


def make_key(path: Path, *, passphrase: str = "") -> Key:
    """A new key pair at ``path`` and ``path``.pub, in place of what is there."""
    key = Key(path)
    path.unlink(missing_ok=True)
    key.public_path.unlink(missing_ok=True)
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", path.name, "-f", str(path)],
        check=True,
        stdin=subprocess.DEVNULL,
    )
    return key
