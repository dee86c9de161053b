"""Plans as data, and the one executor that carries them out."""
