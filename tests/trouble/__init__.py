"""The trouble maker: real processes in every state that a GPU host gets into.

``python -m tests.trouble KIND`` makes specimens of one kind, prints one JSON line for each, and
keeps them until its stdin closes; then, or when it is killed, all it made is ended by pid. Standard
library only, Python 3.8 on, Linux: ``api.archive`` packs it into one file for a host.
``api.make`` is the way to use it from a test. ``kinds`` says what there is.
"""
