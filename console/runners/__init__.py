"""How a server is started: flags and variables put together, then one of three runners.

``settings`` merges a server's entry with presets, ``prepare`` makes the argument vector of an own
process, ``systemd`` a unit's drop-in, ``docker`` a container's environment. All of it is pure: what
was read from the host comes in as values, what must be written comes out as values.
"""
