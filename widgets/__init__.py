"""Textual widgets: they draw the data types of console.model and know nothing else."""
