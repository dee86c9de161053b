"""Scripts behind the Makefile."""
