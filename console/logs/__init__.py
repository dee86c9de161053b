"""Reading a server's log: following, storing, searching; nothing here draws."""
