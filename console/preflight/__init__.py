"""What a launch line will do on a given engine version, before anything is stopped. Pure."""
