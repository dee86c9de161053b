"""Real hosts for tests: machines booted in containers, and sshd on loopback.

``nspawn`` boots Debian with its own systemd, journal, sshd, process numbers and network address;
``sshd`` starts a plain OpenSSH server on 127.0.0.1; ``pct`` stands in for Proxmox' command.
``plugin`` offers them as pytest fixtures. Everything a test starts here has a keeper process
(``keeper``) that takes it down by pid even when the test run itself is killed.
"""
