"""How the shipped weights were made: ``python -m eagle3.train OUT``."""
