"""hosts.yaml and presets: load, validate, save, reload."""
