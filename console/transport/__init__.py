"""Byte channels to a host: ssh, openssh, local and replay."""
