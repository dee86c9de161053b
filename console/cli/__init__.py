"""The command line; imports neither textual nor asyncssh at start-up."""
